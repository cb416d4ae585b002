// One head on several threads: its time is cut into segments whose states are made side by side.
#if defined(G2C_KERNELS_SEGMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef G2C_KERNELS_SEGMENTS_INL_H_
#undef G2C_KERNELS_SEGMENTS_INL_H_
#else
#define G2C_KERNELS_SEGMENTS_INL_H_
#endif

#include <vector>

#include "kernels/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace g2c::kernels::HWY_NAMESPACE {

// to = scale * from + to, or = scale * from + plus.
template <typename T>
void add_scaled(T scale, const T* from, const T* plus, T* to, size_t size) {
  constexpr Tag<T> d;
  for (size_t i = 0; i < size; i += kLanes<T>) {
    hn::Store(hn::MulAdd(hn::Set(d, scale), hn::Load(d, from + i), hn::Load(d, plus + i)), d, to + i);
  }
}

// A head is worth cutting into segments if whole heads would leave threads idle, and if it is long enough for each thread to get several chunks.
inline bool worth_segments(int64_t heads, int64_t tokens, const Parallel& parallel) {
  constexpr int64_t kChunksPerThread = 8;
  return heads < parallel.threads && tokens >= kChunksPerThread * parallel.threads * static_cast<int64_t>(kChunk);
}

// The chunks of a head in the order of a sweep, forward or backward in time.
struct Sweep {
  const TokenList& tokens;
  bool reversed;

  int64_t size() const { return Chunk::count(tokens); }
  int64_t chunk(int64_t at) const { return reversed ? size() - 1 - at : at; }
  // Tokens in steps [begin, end) of the sweep.
  int64_t count(int64_t begin, int64_t end) const {
    const auto length = static_cast<int64_t>(kChunk);
    const int64_t first = reversed ? size() - end : begin;
    const int64_t last = reversed ? size() - begin : end;
    return std::min(tokens.count, last * length) - std::min(tokens.count, first * length);
  }
};

// Runs a sweep on all threads, in windows whose states stay in the second-level caches. In a window each thread first takes its own segment from a state
// of zero on and keeps the state before each chunk; then the states at the beginnings of the segments are known, the kept ones are completed with them,
// and each thread computes its outputs. No product is computed twice.
//
// `begin_worker(run)` makes a worker on the calling thread and calls run(worker). A worker has: `state()`, the State that the next call works on and that
// clear_state() makes zero; advance(chunk, index), which takes it past a chunk; write(chunk, index), which writes the outputs of a chunk; and
// contribution(), a sum to be added up. `running` holds the state before the sweep and then the one after it. Returns the sum of the contributions.
template <typename T, class BeginWorker>
double sweep_segments(const Sweep& sweep, const DecayTables<T>& decay, State<T>& running, const Parallel& parallel, const BeginWorker& begin_worker) {
  constexpr size_t kSegmentBytes = size_t{1} << 20;
  const size_t state_size = running.size();
  const int64_t threads = parallel.threads;
  const int64_t chunks = sweep.size();
  const int64_t longest = std::max<int64_t>(2, static_cast<int64_t>(kSegmentBytes / (state_size * sizeof(T))));
  const int64_t windows = (chunks + threads * longest - 1) / (threads * longest);
  const int64_t length = (chunks + threads * windows - 1) / (threads * windows);
  const AlignedBytes memory = allocate_aligned(static_cast<size_t>(threads * (length + 1)) * state_size * sizeof(T));
  T* const kept = reinterpret_cast<T*>(memory.get());
  T* const ends = kept + static_cast<size_t>(threads * length) * state_size;
  std::vector<double> contributions(static_cast<size_t>(threads));

  for (int64_t window = 0; window < chunks; window += threads * length) {
    const auto segment_begin = [&](int64_t segment) { return std::min(chunks, window + segment * length); };
    const auto kept_state = [&](int64_t at) { return kept + static_cast<size_t>(at - window) * state_size; };
    const auto pass_segment = [&](T* state, int64_t segment) {
      const T scale = decay.power(sweep.count(segment_begin(segment), segment_begin(segment + 1)));
      add_scaled(scale, state, ends + static_cast<size_t>(segment) * state_size, state, state_size);
    };
    parallel.run(threads, [&](int64_t begin, int64_t end) {
      begin_worker([&](auto& worker) {
        for (int64_t segment = begin; segment < end; ++segment) {
          worker.clear_state();
          for (int64_t at = segment_begin(segment); at < segment_begin(segment + 1); ++at) {
            std::copy_n(worker.state().matrix, state_size, kept_state(at));
            worker.advance(Chunk(sweep.tokens, sweep.chunk(at)), sweep.chunk(at));
          }
          std::copy_n(worker.state().matrix, state_size, ends + static_cast<size_t>(segment) * state_size);
        }
      });
    });
    parallel.run(threads, [&](int64_t begin, int64_t end) {
      const AlignedBytes start_memory = allocate_aligned(state_size * sizeof(T));
      T* const start = reinterpret_cast<T*>(start_memory.get());
      begin_worker([&](auto& worker) {
        for (int64_t segment = begin; segment < end; ++segment) {
          std::copy_n(running.matrix, state_size, start);
          for (int64_t before = 0; before < segment; ++before) {
            pass_segment(start, before);
          }
          for (int64_t at = segment_begin(segment); at < segment_begin(segment + 1); ++at) {
            add_scaled(decay.power(sweep.count(segment_begin(segment), at)), start, kept_state(at), worker.state().matrix, state_size);
            worker.write(Chunk(sweep.tokens, sweep.chunk(at)), sweep.chunk(at));
          }
          contributions[static_cast<size_t>(segment)] += worker.contribution();
        }
      });
    });
    for (int64_t segment = 0; segment < threads; ++segment) {
      pass_segment(running.matrix, segment);
    }
  }
  double total = 0;
  for (const double contribution : contributions) {
    total += contribution;
  }
  return total;
}

}  // namespace g2c::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
