// How keys and values lie in the pool: in groups of kLanes positions of one head, as the products read them.
//
// A unit is 32 bits: one fp32, or two bf16. A group of keys is [dim units][kLanes]: lane k of vector u holds
// values 2u and 2u + 1 (in bf16) of key k. A group of values is [kLanes units][dim]: in bf16, element d of
// vector p holds value d of positions 2p and 2p + 1. Position s of head h in block b of a plane is slot
// (b * kv_heads + h) * block_size + s, and slot / kLanes its group.
#pragma once

#include "lanes.h"

namespace branchwise {

template <class Value>
constexpr int kUnitValues = sizeof(uint32_t) / sizeof(Value);

// Writes the `dim` values of a key to `slot` of the planes that begin at `pool`.
template <class Value>
inline void put_key(Value* pool, int64_t slot, const Value* from, int dim) {
  constexpr int kUnit = kUnitValues<Value>;
  uint32_t* to = reinterpret_cast<uint32_t*>(pool + slot / kLanes * kLanes * dim) + slot % kLanes;
  for (int u = 0; u < dim / kUnit; u++) std::memcpy(to + u * kLanes, from + u * kUnit, sizeof(uint32_t));
}

template <class Value>
inline void put_value(Value* pool, int64_t slot, const Value* from, int dim) {
  constexpr int kUnit = kUnitValues<Value>;
  int lane = static_cast<int>(slot % kLanes);
  Value* to = pool + slot / kLanes * kLanes * dim + lane / kUnit * kUnit * dim + lane % kUnit;
  for (int d = 0; d < dim; d++) to[d * kUnit] = from[d];
}

}  // namespace branchwise
