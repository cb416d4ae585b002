#include "kernels/workspace.h"

namespace g2c::kernels {

std::byte* thread_scratch(size_t bytes) {
  thread_local AlignedBytes memory;
  thread_local size_t capacity = 0;
  if (capacity < bytes) {
    memory.reset();
    capacity = 0;
    memory = allocate_aligned(bytes);
    capacity = bytes;
  }
  std::memset(memory.get(), 0, bytes);
  return memory.get();
}

TokenPlan::TokenPlan(const Problem& problem) {
  kept_.reserve(problem.sequences.size());
  masked_.reserve(problem.sequences.size());
  if (problem.mask == nullptr) {
    for (const Sequence& sequence : problem.sequences) {
      kept_.push_back({sequence.end - sequence.begin, sequence.begin, nullptr});
      masked_.push_back({});
    }
    return;
  }
  size_t total = 0;
  for (const Sequence& sequence : problem.sequences) {
    total += static_cast<size_t>(sequence.end - sequence.begin);
  }
  tokens_.reserve(total);  // the lists point into it
  for (const Sequence& sequence : problem.sequences) {
    for (const bool wanted : {true, false}) {
      const size_t first = tokens_.size();
      for (int64_t t = sequence.begin; t < sequence.end; ++t) {
        if (problem.mask[sequence.batch * problem.mask_batch + t * problem.mask_time] == wanted) {
          tokens_.push_back(t);
        }
      }
      (wanted ? kept_ : masked_).push_back({static_cast<int64_t>(tokens_.size() - first), 0, tokens_.data() + first});
    }
  }
}

}  // namespace g2c::kernels
