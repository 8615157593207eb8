// Normalisers of rows of logits, and draws from them: a row stays in the cache from one pass to the next.
//
// The token with the largest weight / noise wins, weight = e**((logit - peak) / temperature), with the noise of
// kernels/noise.py: equal hash, equal uniform value, noise = -log1p(-uniform). Since noise >= uniform, only a
// token with weight / uniform above the best ratio so far can win; the logarithm is taken for those few.
#include <limits>

#include "lanes.h"
#include "team.h"

namespace branchwise {

// Field order and types are those of `_Draws` in sampling.py.
struct Draws {
  const float* logits;       // [draws, vocab]
  const uint32_t* keys;      // [2, draws]
  const float* temperature;  // by draw
  int64_t* tokens;           // by draw, out
  int64_t vocab;
  int32_t draws;
  int32_t threads;
};

constexpr float kSlack = 1.0001f;  // more than the rounding of both sides of the comparison

// 31 bits of the counter hash for sixteen consecutive tokens.
static Words hash(Bits tokens, uint32_t first, uint32_t second) {
  Bits state = tokens * 0x9E3779B9u ^ first;
  state = (state ^ (state >> 16)) * 0x85EBCA6Bu ^ second;
  state = (state ^ (state >> 13)) * 0xC2B2AE35u;
  return reinterpret_cast<Words>((state ^ (state >> 16)) & 0x7FFFFFFFu);
}

static Floats uniform(Words bits) {
  Floats value = (__builtin_convertvector(bits, Floats) + 0.5f) * 0x1p-31f;
  value = (value < 0x1p-32f) ? spread(0x1p-32f) : value;
  return (value > 1.0f - 0x1p-24f) ? spread(1.0f - 0x1p-24f) : value;
}

struct Row {
  const float* logits;
  int vocab;

  // Lanes behind the vocabulary count as -inf.
  Floats at(int first) const {
    if (first + kLanes <= vocab) return load(logits + first);
    Floats some = load_some(logits + first, vocab - first);
    return (ramp() < vocab - first) ? some : spread(-std::numeric_limits<float>::infinity());
  }

  float peak() const {
    Floats peaks = spread(-std::numeric_limits<float>::infinity());
    for (int i = 0; i < vocab; i += kLanes) peaks = larger(at(i), peaks);
    return largest(peaks);
  }

  float log_of_sum(float peak) const {
    Floats even{}, odd{};
    for (int i = 0; i < vocab; i += 2 * kLanes) {
      even += exponential(at(i) - peak);
      if (i + kLanes < vocab) odd += exponential(at(i + kLanes) - peak);
    }
    return std::log(sum(even + odd));
  }

  int64_t race(float peak, float temperature, uint32_t first_key, uint32_t second_key) const {
    float best = -1.0f;
    int64_t winner = 0;
    for (int i = 0; i < vocab; i += kLanes) {
      Floats weight = exponential((at(i) - peak) / temperature);
      Bits tokens = reinterpret_cast<Bits>(ramp() + i);
      Floats chance = uniform(hash(tokens, first_key, second_key));
      if (!any(weight * kSlack > chance * best)) continue;
      for (int lane = 0; lane < kLanes && i + lane < vocab; lane++) {
        float ratio = weight[lane] / -std::log1p(-chance[lane]);
        if (ratio > best) {
          best = ratio;
          winner = i + lane;
        }
      }
    }
    return winner;
  }
};

}  // namespace branchwise

extern "C" void branchwise_draw(const branchwise::Draws* draws) {
  branchwise::parallel_for(draws->draws, draws->threads, 1, [&](int i) {
    branchwise::Row row{draws->logits + i * draws->vocab, static_cast<int>(draws->vocab)};
    draws->tokens[i] = row.race(row.peak(), draws->temperature[i], draws->keys[i], draws->keys[draws->draws + i]);
  });
}

// The logarithm of the sum of the exponentials of each row.
extern "C" void branchwise_normalise(const float* logits, float* out, int32_t rows, int64_t vocab, int32_t threads) {
  branchwise::parallel_for(rows, threads, 1, [&](int i) {
    branchwise::Row row{logits + i * vocab, static_cast<int>(vocab)};
    float peak = row.peak();
    out[i] = peak + row.log_of_sum(peak);
  });
}
