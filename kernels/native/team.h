// The threads of the operators: helpers that wait, awake for a moment, for the next piece of work.
//
// A layer is a dozen operators of some ten microseconds each. A helper that spins between them joins within
// one; a sleeping one takes longer to wake than the work takes. Work is handed out in chunks to whoever
// comes, so a helper that another program keeps from running delays nothing but the chunk it holds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace branchwise {

using Work = void (*)(const void* context, int item);

// Runs `work` for the items 0 to items - 1 on up to `threads` threads, `chunk` items at a time, and returns
// when all are done. While another caller has the helpers, the caller works alone.
void run_team(int items, int threads, int chunk, Work work, const void* context);

template <class Function>
void parallel_for(int items, int threads, int chunk, const Function& function) {
  if (threads <= 1 || items <= chunk) {
    for (int item = 0; item < items; item++) function(item);
    return;
  }
  run_team(items, threads, chunk,
           [](const void* context, int item) { (*static_cast<const Function*>(context))(item); }, &function);
}

// Chunks for `threads` threads: four each, so that they end at about the same time.
inline int chunk_of(int items, int threads) { return std::max(1, items / (threads * 4)); }

}  // namespace branchwise
