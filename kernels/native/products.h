// The two small products of attention, in units of 32 bits: one fp32, or two neighbouring bf16.
//
// Every element of a product is one chain of multiply-adds along the depth. Its bits therefore do not depend
// on how many queries are computed beside it, nor on which of the shapes below computes it.
#pragma once

#include "lanes.h"

namespace branchwise {

struct FloatUnit {
  static constexpr int kValues = 1;
  static constexpr uint32_t kMask = 0xFFFFFFFFu;  // of the first value
  static Part dot(Part sum, PartBits right, uint32_t left) {
    return multiply_add((Part)right, (Part)(PartBits{} + left), sum);
  }
  template <class Value>
  static Bits read(const Value* from) {
    return as_bits(load(from));
  }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<float*>(to) + lane, weights);
  }
};

struct PairUnit {
  static constexpr int kValues = 2;
  static constexpr uint32_t kMask = 0xFFFFu;
  static Part dot(Part sum, PartBits right, uint32_t left) {
#if defined(__AVX512BF16__)
    __m512i spread_left = _mm512_set1_epi32(static_cast<int>(left));
    return (Part)_mm512_dpbf16_ps((__m512)sum, (__m512bh)right, (__m512bh)spread_left);
#else
    PartBits spread_left = PartBits{} + left;
    sum = multiply_add((Part)(right & 0xFFFF0000u), (Part)(spread_left & 0xFFFF0000u), sum);
    return multiply_add((Part)(right << 16), (Part)(spread_left << 16), sum);
#endif
  }
  static Bits read(const Bfloat* from) { return load(reinterpret_cast<const uint32_t*>(from)); }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<Bfloat*>(to) + lane, weights);
  }
};

// Sums that are kept in registers at once beside what is multiplied.
constexpr int kSums = kPartLanes == 16 ? 24 : 12;

// Parts of a query that are computed at once: as many as the registers allow, the same number each time.
constexpr int width_of(int queries, int parts) {
  int width = 1;
  for (int w = 1; w <= parts; w++)
    if (parts % w == 0 && queries * w <= kSums) width = w;
  return width;
}

// `sums` are rows of parts, `sums_stride` values apart; `right[v]` has kParts of them.
template <class Unit, int kQueries, int kWidth>
inline void accumulate_parts(
    const uint32_t* left, int64_t left_stride, const uint32_t* const* right, int first_part, int64_t stride,
    int depth, float* sums, int64_t sums_stride) {
  const uint32_t* from[kWidth];
  for (int w = 0; w < kWidth; w++)
    from[w] = right[(first_part + w) / kParts] + (first_part + w) % kParts * kPartLanes;
  auto at = [&](int q, int w) -> PartInMemory& {
    return *reinterpret_cast<PartInMemory*>(sums + q * sums_stride + (first_part + w) * kPartLanes);
  };
  Part mine[kQueries][kWidth];
  for (int q = 0; q < kQueries; q++)
    for (int w = 0; w < kWidth; w++) mine[q][w] = at(q, w);
  for (int d = 0; d < depth; d++) {
    PartBits lanes[kWidth];
    for (int w = 0; w < kWidth; w++) lanes[w] = *reinterpret_cast<const PartBitsInMemory*>(from[w] + d * stride);
    for (int q = 0; q < kQueries; q++)
      for (int w = 0; w < kWidth; w++) mine[q][w] = Unit::dot(mine[q][w], lanes[w], left[q * left_stride + d]);
  }
  for (int q = 0; q < kQueries; q++)
    for (int w = 0; w < kWidth; w++) at(q, w) = mine[q][w];
}

// sums[q][v] += left[q][d] * right[v][d] over the depth; each `right[v]` has `stride` units from one d to the
// next.
template <class Unit, int kQueries, int kVectors>
inline void accumulate(
    const uint32_t* left, int64_t left_stride, const uint32_t* const (&right)[kVectors], int64_t stride, int depth,
    Floats (&sums)[kQueries][kVectors]) {
  constexpr int kAtOnce = kPartLanes < 16 && kQueries > 6 ? kQueries / 2 : kQueries;
  static_assert(kQueries % kAtOnce == 0, "queries are taken in equal shares");
  constexpr int kWidth = width_of(kAtOnce, kVectors * kParts);
  for (int q = 0; q < kQueries; q += kAtOnce)
    for (int part = 0; part < kVectors * kParts; part += kWidth)
      accumulate_parts<Unit, kAtOnce, kWidth>(
          left + q * left_stride, left_stride, right, part, stride, depth, reinterpret_cast<float*>(sums[q]),
          kVectors * kLanes);
}

}  // namespace branchwise
