#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace branchwise {

// Longer than the pause between two steps of a small model; then the helper sleeps.
constexpr std::chrono::microseconds kAwake{1000};
constexpr int kTurnsPerLook = 64;  // turns of spinning between two looks at the clock

static void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  void run(int items, int threads, int chunk, Work work, const void* context) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      for (int item = 0; item < items; item++) work(context, item);
      return;
    }
    hire(threads - 1);
    items_ = items;
    chunk_ = chunk;
    work_ = work;
    context_ = context;
    wanted_ = threads - 1;
    next_.store(0, std::memory_order_relaxed);
    open_.store(true);
    announce();
    take();
    open_.store(false);
    for (int turns = 0; inside_.load() != 0; turns++) turns < 4096 ? relax() : void(sched_yield());
  }

 private:
  // A helper is `inside_` before it looks whether the work is `open_`; the caller closes it before it looks
  // whether anyone is inside. So nobody reads the fields of a piece of work that has ended.
  void help(int index) {
    for (uint64_t seen = 0;;) {
      seen = wait(seen);
      inside_.fetch_add(1);
      if (open_.load() && index < wanted_) take();
      inside_.fetch_sub(1);
    }
  }

  void take() {
    int items = items_, chunk = chunk_;
    for (;;) {
      int first = next_.fetch_add(chunk, std::memory_order_relaxed);
      if (first >= items) return;
      for (int item = first; item < std::min(first + chunk, items); item++) work_(context_, item);
    }
  }

  void announce() {
    announced_.fetch_add(1);
    if (asleep_.load() == 0) return;
    std::lock_guard<std::mutex> lock(bed_);
    woken_.notify_all();
  }

  uint64_t wait(uint64_t seen) {
    auto end = std::chrono::steady_clock::now() + kAwake;
    do {
      for (int turn = 0; turn < kTurnsPerLook; turn++) {
        uint64_t now = announced_.load();
        if (now != seen) return now;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
    std::unique_lock<std::mutex> lock(bed_);
    asleep_.fetch_add(1);
    woken_.wait(lock, [&] { return announced_.load() != seen; });
    asleep_.fetch_sub(1);
    return announced_.load();
  }

  // Signals stay with the threads that wait for them. Where no thread can be had, those that are there do.
  void hire(int helpers) {
    if (hired_ >= helpers) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    try {
      for (; hired_ < helpers; hired_++) std::thread(&Team::help, this, hired_).detach();
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::mutex turn_;  // of the callers
  int hired_ = 0;
  int items_ = 0, chunk_ = 1, wanted_ = 0;
  Work work_ = nullptr;
  const void* context_ = nullptr;
  std::mutex bed_;
  std::condition_variable woken_;
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<uint64_t> announced_{0};
  alignas(64) std::atomic<bool> open_{false};
  alignas(64) std::atomic<int> inside_{0};
  alignas(64) std::atomic<int> asleep_{0};
};

// Never destroyed: helpers wait in it until the process ends. A forked child has no helpers, hence a new team.
static std::atomic<Team*> team{nullptr};

static void renew() { team.store(new Team); }

void run_team(int items, int threads, int chunk, Work work, const void* context) {
  static std::once_flag once;
  std::call_once(once, [] {
    renew();
    pthread_atfork(nullptr, nullptr, renew);
  });
  team.load()->run(items, threads, chunk, work, context);
}

}  // namespace branchwise
