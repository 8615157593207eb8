// Sixteen 32-bit lanes, the unit that every operator here computes in.
//
// The vector types are those of GCC and Clang: where a machine has no 512-bit registers the compiler splits
// them. Intrinsics are used where the language has no word for the operation, always with a plain version.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace branchwise {

constexpr int kLanes = 16;

// Memory may hold another type and need not be aligned: hence the second type of each pair.
typedef float Floats __attribute__((vector_size(64), may_alias));
typedef float FloatsInMemory __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Words __attribute__((vector_size(64), may_alias));
typedef uint32_t Bits __attribute__((vector_size(64), may_alias));
typedef uint32_t BitsInMemory __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(32), may_alias));
typedef uint16_t HalvesInMemory __attribute__((vector_size(32), aligned(2), may_alias));

// What one register of the machine holds of sixteen lanes: the compiler keeps wider vectors in memory.
#if defined(__AVX512F__)
constexpr int kPartLanes = 16;
#elif defined(__AVX__)
constexpr int kPartLanes = 8;
#else
constexpr int kPartLanes = 4;
#endif
constexpr int kParts = kLanes / kPartLanes;
typedef float Part __attribute__((vector_size(4 * kPartLanes), may_alias));
typedef float PartInMemory __attribute__((vector_size(4 * kPartLanes), aligned(4), may_alias));
typedef uint32_t PartBits __attribute__((vector_size(4 * kPartLanes), may_alias));
typedef uint32_t PartBitsInMemory __attribute__((vector_size(4 * kPartLanes), aligned(4), may_alias));

typedef uint16_t Bfloat;  // the upper half of an fp32

inline Floats as_floats(Bits x) { return reinterpret_cast<Floats>(x); }
inline Bits as_bits(Floats x) { return reinterpret_cast<Bits>(x); }
inline Floats spread(float x) { return Floats{} + x; }
inline Words ramp() { return Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

inline Floats load(const float* from) { return *reinterpret_cast<const FloatsInMemory*>(from); }
inline Bits load(const uint32_t* from) { return *reinterpret_cast<const BitsInMemory*>(from); }
inline void store(float* to, Floats x) { *reinterpret_cast<FloatsInMemory*>(to) = x; }
inline void store(uint32_t* to, Bits x) { *reinterpret_cast<BitsInMemory*>(to) = x; }

inline Floats load(const Bfloat* from) {
  Halves halves = *reinterpret_cast<const HalvesInMemory*>(from);
  return as_floats(__builtin_convertvector(halves, Bits) << 16);
}

// To the nearest, ties to even, as torch rounds; a NaN stays one. The instruction takes denormals for zero.
inline void store(Bfloat* to, Floats x) {
#if defined(__AVX512BF16__)
  *reinterpret_cast<HalvesInMemory*>(to) = (Halves)_mm512_cvtneps_pbh((__m512)x);
#else
  Bits bits = as_bits(x);
  Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Bits kept = (x == x) ? rounded : Bits{} + 0x7fc0;
  *reinterpret_cast<HalvesInMemory*>(to) = __builtin_convertvector(kept, Halves);
#endif
}

inline float to_float(float x) { return x; }
inline float to_float(Bfloat x) {
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline void put(float* to, float x) { *to = x; }
inline void put(Bfloat* to, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  *to = x == x ? static_cast<Bfloat>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : 0x7fc0;
}

// The first `count` values, zero in the other lanes.
template <class Value>
inline Floats load_some(const Value* from, int count) {
  alignas(64) float lanes[kLanes] = {};
  for (int i = 0; i < count; i++) lanes[i] = to_float(from[i]);
  return load(lanes);
}
template <class Value>
inline void store_some(Value* to, Floats x, int count) {
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  for (int i = 0; i < count; i++) put(to + i, lanes[i]);
}

// One rounding where the machine has it. The compiler must not fuse on its own (-ffp-contract=off): it would do
// so here and not there, and the bits of a row would depend on which shape computed it.
inline Part multiply_add(Part a, Part b, Part c) {
#if defined(__AVX512F__)
  return (Part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

#if !defined(__AVX512F__)
// `f` of each part, so that what lies between two loads stays in registers.
template <class Function, class... Vectors>
inline Floats by_part(Function f, Vectors... vectors) {
  Floats result;
  for (int p = 0; p < kParts; p++) reinterpret_cast<Part*>(&result)[p] = f(reinterpret_cast<Part*>(&vectors)[p]...);
  return result;
}

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return by_part([](Part x, Part y, Part z) { return multiply_add(x, y, z); }, a, b, c);
}
#endif

inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}

// Sums and maxima over the lanes: always the same tree.
inline float sum(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x);
#else
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  for (int width = kLanes / 2; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
#endif
}
inline float largest(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x);
#else
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  for (int i = 1; i < kLanes; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
#endif
}

inline bool any(Words condition) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)condition, (__m512i)condition) != 0;
#else
  int32_t found = 0;
  for (int i = 0; i < kLanes; i++) found |= condition[i];
  return found != 0;
#endif
}

// e**x within 2 ulp for x <= 88; far below -87 it is 0, and so it is for -inf; NaN stays NaN.
inline Part exponential(Part x) {
  auto spread = [](float value) { return Part{} + value; };
#if defined(__AVX512F__)
  Part inside = (Part)_mm512_max_ps((__m512)spread(-200.0f), (__m512)x);
  Part whole = (Part)_mm512_roundscale_ps((__m512)(inside * 1.44269504089f), _MM_FROUND_TO_NEAREST_INT);
#else
  constexpr float kRound = 12582912.0f;  // 1.5 * 2**23: adding it rounds to an integer in the low bits
  Part inside = (x < -87.0f) ? spread(-87.0f) : x;
  Part shifted = multiply_add(inside, spread(1.44269504089f), spread(kRound));
  Part whole = shifted - kRound;
#endif
  Part rest = multiply_add(whole, spread(-0.693359375f), inside);
  rest = multiply_add(whole, spread(2.12194440e-4f), rest);
  Part y = spread(1.9875691500e-4f);
  y = multiply_add(y, rest, spread(1.3981999507e-3f));
  y = multiply_add(y, rest, spread(8.3334519073e-3f));
  y = multiply_add(y, rest, spread(4.1665795894e-2f));
  y = multiply_add(y, rest, spread(1.6666665459e-1f));
  y = multiply_add(y, rest, spread(5.0000001201e-1f));
  y = multiply_add(y, rest * rest, rest + 1.0f);
#if defined(__AVX512F__)
  return (Part)_mm512_scalef_ps((__m512)y, (__m512)whole);
#else
  Part scaled = (Part)((PartBits)y + ((PartBits)shifted << 23));
  return (x < -87.0f) ? Part{} : scaled;
#endif
}

// 2**x within 4 ulp for x <= 0; far below -126 it is 0, and so it is for -inf; NaN stays NaN.
inline Part power_of_two(Part x) {
#if defined(__AVX512DQ__)
  Part inside = (Part)_mm512_max_ps((__m512)spread(-300.0f), (__m512)x);
  Part rest = (Part)_mm512_reduce_ps((__m512)inside, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Part y = spread(1.87757669e-3f);  // the polynomial of degree 5 with the least relative error on [0, 1)
  y = multiply_add(y, rest, spread(8.98933969e-3f));
  y = multiply_add(y, rest, spread(5.58263175e-2f));
  y = multiply_add(y, rest, spread(2.40153611e-1f));
  y = multiply_add(y, rest, spread(6.93153083e-1f));
  y = multiply_add(y, rest, spread(9.99999940e-1f));
  return (Part)_mm512_scalef_ps((__m512)y, (__m512)inside);
#else
  return exponential(x * 0.693147181f);
#endif
}

#if !defined(__AVX512F__)
inline Floats exponential(Floats x) {
  return by_part([](Part part) { return exponential(part); }, x);
}
inline Floats power_of_two(Floats x) {
  return by_part([](Part part) { return power_of_two(part); }, x);
}
#endif

}  // namespace branchwise
