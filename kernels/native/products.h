// The two small products of attention, in units of 32 bits: one fp32, or two neighbouring bf16.
//
// Every element of a product is one chain of multiply-adds along the depth. Its bits therefore do not depend
// on how many queries are computed beside it, nor on which of the shapes below computes it.
#pragma once

#include "lanes.h"

namespace branchwise {

struct FloatUnit {
  static constexpr int kValues = 1;
  static Floats dot(Floats sum, Bits right, uint32_t left) {
    return multiply_add(as_floats(right), as_floats(Bits{} + left), sum);
  }
  template <class Value>
  static Bits read(const Value* from) {
    return as_bits(load(from));
  }
  static Bits join(Floats first, Floats) { return as_bits(first); }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<float*>(to) + lane, weights);
  }
};

#if defined(__AVX512BF16__)
struct PairUnit {
  static constexpr int kValues = 2;
  static Floats dot(Floats sum, Bits right, uint32_t left) {
    __m512i spread_left = _mm512_set1_epi32(static_cast<int>(left));
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)right, (__m512bh)spread_left);
  }
  static Bits read(const Bfloat* from) { return load(reinterpret_cast<const uint32_t*>(from)); }
  static Bits join(Floats first, Floats second) { return (as_bits(first) >> 16) | as_bits(second); }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<Bfloat*>(to) + lane, weights);
  }
};
#endif

// sums[q][v] += left[q][d] * right[d][v] over the depth; `right` has `stride` lanes from one d to the next.
template <class Unit, int kQueries, int kVectors>
inline void accumulate(
    const uint32_t* left, int64_t left_stride, const uint32_t* right, int64_t stride, int depth,
    Floats (&sums)[kQueries][kVectors]) {
  for (int d = 0; d < depth; d++) {
    Bits lanes[kVectors];
    for (int v = 0; v < kVectors; v++) lanes[v] = load(right + d * stride + v * kLanes);
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kVectors; v++)
        sums[q][v] = Unit::dot(sums[q][v], lanes[v], left[q * left_stride + d]);
  }
}

// Sixteen vectors of sixteen units become their transpose.
inline void transpose(Bits (&rows)[kLanes]) {
#if defined(__AVX512F__)
  __m512i a[kLanes], b[kLanes];
  for (int i = 0; i < kLanes; i += 2) {
    a[i] = _mm512_unpacklo_epi32((__m512i)rows[i], (__m512i)rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32((__m512i)rows[i], (__m512i)rows[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // b[i + j] holds, in its 128-bit part p, column 4 * p + j of rows i to i + 3.
  for (int j = 0; j < 4; j++) {
    __m512i even_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    __m512i even_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    __m512i odd_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
    __m512i odd_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
    rows[j] = (Bits)_mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + j] = (Bits)_mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + j] = (Bits)_mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[12 + j] = (Bits)_mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
#else
  for (int i = 0; i < kLanes; i++)
    for (int j = 0; j < i; j++) {
      uint32_t upper = rows[j][i];
      rows[j][i] = rows[i][j];
      rows[i][j] = upper;
    }
#endif
}

}  // namespace branchwise
