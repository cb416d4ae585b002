#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/linear_attention.h"

// Memory and token lists of the kernels, independent of the instruction set.
namespace g2c::kernels {

inline constexpr size_t kAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{kAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

inline AlignedBytes allocate_aligned(size_t bytes) { return AlignedBytes(new (std::align_val_t{kAlignment}) std::byte[bytes]); }

// Hands out aligned arrays one after the other. Without memory it only counts, so one description of a layout serves to size and to place it.
class Layout {
 public:
  explicit Layout(std::byte* memory = nullptr) : memory_(memory) {}

  template <typename T>
  T* take(size_t count) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }

  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

// Zeroed scratch of the calling thread, kept from call to call: a fresh page for each call would cost more than a short sequence. A chunk's operands
// and one state, some hundred kilobytes. Valid until the thread asks again.
std::byte* thread_scratch(size_t bytes);

// The tokens that a sequence's state passes through, in order: all from `begin` on, or those listed.
struct TokenList {
  int64_t count = 0;
  int64_t begin = 0;
  const int64_t* listed = nullptr;

  // Writes the tokens [first, first + n) of the list.
  void copy(int64_t first, size_t n, int64_t* to) const {
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      to[i] = listed == nullptr ? begin + at : listed[at];
    }
  }
};

// The tokens of each sequence, sorted by the mask.
class TokenPlan {
 public:
  explicit TokenPlan(const Problem& problem);

  const TokenList& kept(size_t sequence) const { return kept_[sequence]; }
  const TokenList& masked(size_t sequence) const { return masked_[sequence]; }

 private:
  std::vector<int64_t> tokens_;
  std::vector<TokenList> kept_;
  std::vector<TokenList> masked_;
};

// body(begin, end) over [0, n), on the caller's threads if there are several and there is more than one piece.
template <typename Body>
void run_parallel(const Parallel& parallel, int64_t n, const Body& body) {
  if (n > 1 && parallel.threads > 1) {
    parallel.run(n, body);
  } else if (n > 0) {
    body(0, n);
  }
}

// Calls the work on each head of each sequence: one after the other with all threads on each, in_time(sequence, head), if worth_time(heads, tokens) says
// so of all heads and the shortest sequence, or else side_by_side(sequence, first_head, end_head) on groups of neighbouring heads, several groups at a
// time. Their states and rows have to stay in the second-level cache together.
template <typename WorthTime, typename InTime, typename SideBySide>
void run_heads(const Problem& problem, const TokenPlan& plan, const Parallel& parallel, const WorthTime& worth_time, const InTime& in_time,
               const SideBySide& side_by_side) {
  constexpr int64_t kStateBytes = int64_t{1} << 18;
  const auto tasks = static_cast<int64_t>(problem.sequences.size()) * problem.heads;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (size_t sequence = 0; sequence < problem.sequences.size(); ++sequence) {
    shortest = std::min(shortest, plan.kept(sequence).count);
  }
  if (worth_time(tasks, shortest)) {
    for (int64_t task = 0; task < tasks; ++task) {
      in_time(static_cast<size_t>(task / problem.heads), task % problem.heads);
    }
    return;
  }
  const int64_t group = std::max<int64_t>(1, kStateBytes / (problem.key_dim * problem.value_dim * static_cast<int64_t>(sizeof(float))));
  run_parallel(parallel, tasks, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t head = begin % problem.heads;
      const int64_t count = std::min({group, problem.heads - head, end - begin});
      side_by_side(static_cast<size_t>(begin / problem.heads), head, head + count);
      begin += count;
    }
  });
}

}  // namespace g2c::kernels
