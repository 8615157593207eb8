// What stands between the matrix products of a layer, each in one pass over its rows: norms, rotation with the
// store of keys and values, and the gate. All compute in fp32 and round once. A row is worked on alone.
#include "groups.h"
#include "lanes.h"
#include "team.h"

namespace branchwise {

// Work below this many values is done before another thread would have woken up.
constexpr int64_t kValuesPerFork = 1 << 17;

static int threads_for(int64_t values, int32_t threads) { return values < kValuesPerFork ? 1 : threads; }

template <class Value>
static void norm_row(const Value* x, const Value* weight, Value* out, int width, float eps) {
  Floats squares{};
  int whole = width / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes) {
    Floats value = load(x + i);
    squares = multiply_add(value, value, squares);
  }
  if (whole < width) {
    Floats value = load_some(x + whole, width - whole);
    squares = multiply_add(value, value, squares);
  }
  float factor = 1.0f / std::sqrt(sum(squares) / width + eps);
  for (int i = 0; i < whole; i += kLanes) store(out + i, load(x + i) * factor * load(weight + i));
  if (whole < width)
    store_some(out + whole, load_some(x + whole, width - whole) * factor * load_some(weight + whole, width - whole),
               width - whole);
}

template <class Value>
static void norm(const Value* x, const Value* weight, Value* out, int32_t rows, int32_t width, float eps,
                 int32_t threads) {
  parallel_for(rows, threads, chunk_of(rows, threads), [&](int row) {
    norm_row(x + int64_t{row} * width, weight, out + int64_t{row} * width, width, eps);
  });
}

// silu(gate) * up, where a row of x is the gate followed by up.
template <class Value>
static void gate(const Value* x, Value* out, int32_t rows, int32_t width, int32_t threads) {
  parallel_for(rows, threads, chunk_of(rows, threads), [&](int row) {
    const Value* from = x + int64_t{row} * 2 * width;
    Value* to = out + int64_t{row} * width;
    for (int i = 0; i < width; i += kLanes) {
      int count = width - i;
      bool whole = count >= kLanes;
      Floats a = whole ? load(from + i) : load_some(from + i, count);
      Floats b = whole ? load(from + width + i) : load_some(from + width + i, count);
      Floats falling = (a < -87.0f) ? spread(87.0f) : -a;
      Floats result = a / (exponential(falling) + 1.0f) * b;
      if (whole) store(to + i, result);
      else store_some(to + i, result, count);
    }
  });
}

// What all layers of a step share. Field order and types are those of `_Rotation` in elementwise.py.
struct Rotation {
  const int64_t* positions;  // [rows]
  const int64_t* slots;      // [stored, 2 * kv_heads]: rows of the pool seen as [.., dim]
  const void* cosine;        // [positions, dim]
  const void* sine;          // [positions, dim], its first half negated
  int32_t stored;            // rows that are stored; those behind them are padding
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
  float eps;
  int32_t is_grouped;        // whether the pool lies in groups (groups.h) or in rows
  int32_t threads;
};

template <class Value>
static void rotate_head(const Value* from, const Value* cosine, const Value* sine, Value* to, int dim) {
  int half = dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    int count = half - i;
    bool whole = count >= kLanes;
    auto read = [&](const Value* x) { return whole ? load(x + i) : load_some(x + i, count); };
    Floats a = read(from), b = read(from + half);
    Floats low = multiply_add(a, read(cosine), b * read(sine));
    Floats high = multiply_add(b, read(cosine + half), a * read(sine + half));
    if (whole) {
      store(to + i, low);
      store(to + half + i, high);
    } else {
      store_some(to + i, low, count);
      store_some(to + half + i, high, count);
    }
  }
}

// Queries are rotated where they lie; keys go to the pool rotated, values as they are.
template <class Value>
static void rotate(const Rotation& step, Value* qkv, const Value* query_norm, const Value* key_norm, Value* pool) {
  int all = step.heads + 2 * step.kv_heads;
  int threads = threads_for(int64_t{step.stored} * all * step.dim, step.threads);
  parallel_for(step.stored, threads, chunk_of(step.stored, threads), [&](int row) {
    Value* from = qkv + int64_t{row} * all * step.dim;
    const Value* cosine = static_cast<const Value*>(step.cosine) + step.positions[row] * step.dim;
    const Value* sine = static_cast<const Value*>(step.sine) + step.positions[row] * step.dim;
    const int64_t* slots = step.slots + int64_t{row} * 2 * step.kv_heads - step.heads;
    for (int head = 0; head < all; head++, from += step.dim) {
      bool is_query = head < step.heads, is_value = head >= step.heads + step.kv_heads;
      if (!is_value) {
        const Value* weight = is_query ? query_norm : key_norm;
        if (weight) norm_row(from, weight, from, step.dim, step.eps);
        rotate_head(from, cosine, sine, from, step.dim);
      }
      if (is_query) continue;
      if (!step.is_grouped) std::memcpy(pool + slots[head] * step.dim, from, step.dim * sizeof(Value));
      else if (is_value) put_value(pool, slots[head], from, step.dim);
      else put_key(pool, slots[head], from, step.dim);
    }
  });
}

// `rows` [count, 2 * kv_heads, dim] to their slots [count, 2 * kv_heads] of a pool in groups.
template <class Value>
static void store_rows(const Value* rows, const int64_t* slots, Value* pool, int32_t count, int32_t kv_heads, int32_t dim) {
  for (int64_t i = 0; i < int64_t{count} * 2 * kv_heads; i++) {
    if (i % (2 * kv_heads) < kv_heads) put_key(pool, slots[i], rows + i * dim, dim);
    else put_value(pool, slots[i], rows + i * dim, dim);
  }
}

}  // namespace branchwise

using branchwise::Bfloat;

extern "C" void branchwise_norm(const void* x, const void* weight, void* out, int32_t rows, int32_t width,
                                float eps, int32_t is_bfloat, int32_t threads) {
  threads = branchwise::threads_for(int64_t{rows} * width, threads);
  if (is_bfloat)
    branchwise::norm(static_cast<const Bfloat*>(x), static_cast<const Bfloat*>(weight), static_cast<Bfloat*>(out),
                     rows, width, eps, threads);
  else
    branchwise::norm(static_cast<const float*>(x), static_cast<const float*>(weight), static_cast<float*>(out),
                     rows, width, eps, threads);
}

extern "C" void branchwise_gate(const void* x, void* out, int32_t rows, int32_t width, int32_t is_bfloat,
                                int32_t threads) {
  threads = branchwise::threads_for(int64_t{rows} * width, threads);
  if (is_bfloat)
    branchwise::gate(static_cast<const Bfloat*>(x), static_cast<Bfloat*>(out), rows, width, threads);
  else
    branchwise::gate(static_cast<const float*>(x), static_cast<float*>(out), rows, width, threads);
}

extern "C" void branchwise_rotate(const branchwise::Rotation* step, void* qkv, const void* query_norm,
                                  const void* key_norm, void* pool, int32_t is_bfloat) {
  if (is_bfloat)
    branchwise::rotate(*step, static_cast<Bfloat*>(qkv), static_cast<const Bfloat*>(query_norm),
                       static_cast<const Bfloat*>(key_norm), static_cast<Bfloat*>(pool));
  else
    branchwise::rotate(*step, static_cast<float*>(qkv), static_cast<const float*>(query_norm),
                       static_cast<const float*>(key_norm), static_cast<float*>(pool));
}

extern "C" void branchwise_store(const void* rows, const int64_t* slots, void* pool, int32_t count, int32_t kv_heads,
                                 int32_t dim, int32_t is_bfloat) {
  if (is_bfloat)
    branchwise::store_rows(static_cast<const Bfloat*>(rows), slots, static_cast<Bfloat*>(pool), count, kv_heads, dim);
  else
    branchwise::store_rows(static_cast<const float*>(rows), slots, static_cast<float*>(pool), count, kv_heads, dim);
}
