// Products with a fixed weight, laid out beforehand in panels of kPanel outputs: [panels, depth, kPanel] units.
//
// A panel is read once from memory and then, out of the cache, by every block of rows. Each element is one
// chain of multiply-adds along the inputs, whatever the number of rows or threads; so are its bits.
#include <algorithm>

#include "products.h"
#include "team.h"

namespace branchwise {

constexpr int kPanelVectors = 3;  // 8 rows times 3 vectors of sums leave registers for what is multiplied
constexpr int kPanel = kPanelVectors * kLanes;

// Field order and types are those of `_Product` in linear.py.
struct Product {
  const void* x;         // [rows, inputs], rows `x_stride` values apart
  const void* panels;
  const void* bias;      // [outputs] or null
  const void* residual;  // [rows, outputs] or null
  void* out;             // [rows, outputs]; fp32 where `is_wide`
  int64_t x_stride;
  int32_t rows;
  int32_t inputs;
  int32_t outputs;
  int32_t is_bfloat;
  int32_t is_wide;
  int32_t threads;
};

template <class Value>
static void write(Value* to, Floats result, int count) {
  if (count == kLanes) store(to, result);
  else store_some(to, result, count);
}

template <class Value, class Unit, int kRows>
static void block(const Product& p, int panel, int row) {
  int depth = p.inputs / Unit::kValues;
  int64_t stride = p.x_stride / Unit::kValues;
  const uint32_t* weights[kPanelVectors];
  for (int v = 0; v < kPanelVectors; v++)
    weights[v] = static_cast<const uint32_t*>(p.panels) + int64_t{panel} * depth * kPanel + v * kLanes;
  Floats sums[kRows][kPanelVectors] = {};
  accumulate<Unit, kRows, kPanelVectors>(
      static_cast<const uint32_t*>(p.x) + row * stride, stride, weights, kPanel, depth, sums);
  for (int v = 0; v < kPanelVectors; v++) {
    int first = panel * kPanel + v * kLanes, count = std::min(kLanes, p.outputs - first);
    if (count <= 0) break;
    auto read = [&](const void* from, int64_t at) {
      const Value* values = static_cast<const Value*>(from) + at;
      return count == kLanes ? load(values) : load_some(values, count);
    };
    for (int r = 0; r < kRows; r++) {
      int64_t at = int64_t{row + r} * p.outputs + first;
      Floats result = sums[r][v];
      if (p.bias) result += read(p.bias, first);
      if (p.residual) result += read(p.residual, at);
      if (p.is_wide) write(static_cast<float*>(p.out) + at, result, count);
      else write(static_cast<Value*>(p.out) + at, result, count);
    }
  }
}

template <class Value, class Unit>
static void multiply(const Product& p) {
  int panels = (p.outputs + kPanel - 1) / kPanel;
  parallel_for(panels, p.threads, chunk_of(panels, p.threads), [&](int panel) {
    int row = 0;
    for (; row + 8 <= p.rows; row += 8) block<Value, Unit, 8>(p, panel, row);
    for (; row + 4 <= p.rows; row += 4) block<Value, Unit, 4>(p, panel, row);
    for (; row < p.rows; row++) block<Value, Unit, 1>(p, panel, row);
  });
}

}  // namespace branchwise

extern "C" void branchwise_multiply(const branchwise::Product* product) {
  if (!product->is_bfloat) return branchwise::multiply<float, branchwise::FloatUnit>(*product);
#if defined(__AVX512BF16__)
  branchwise::multiply<branchwise::Bfloat, branchwise::PairUnit>(*product);
#endif
}

// Values in a unit of bf16 products: 2, or 0 where this machine has no instruction for them.
extern "C" int32_t branchwise_bfloat_unit() {
#if defined(__AVX512BF16__)
  return 2;
#else
  return 0;
#endif
}
