/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes vectors of the compiled endpoint from the collectives that the network carries. Each has a buffer:
 * the tensor's own memory where possible, else a copy.
 */
#pragma once

#include <linux/types.h>

#include <cstring>

#include "buffers.hpp"
#include "heard.hpp"
#include "staging.hpp"
#include "works.hpp"

namespace inc {

#include "wire.h"

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using BuffersPtr = std::shared_ptr<Buffers>;
using SumWorkPtr = c10::intrusive_ptr<SumWork>;

/*
 * The destination for what rounding leaves out of a sum, for the calls of this thread
 * (workloads/feedback.py).
 */
class Lost {
  public:
	explicit Lost(at::Tensor vector) : vector_(std::move(vector)) {}

	void begin() const { wanted() = vector_; }
	static void end() { wanted().reset(); }

	/* The destination for a vector of this length; undefined if there is none. */
	static at::Tensor of(const at::Tensor &vector)
	{
		return wanted() && wanted()->numel() == vector.numel() ? *wanted() : at::Tensor();
	}

  private:
	static std::optional<at::Tensor> &wanted()
	{
		static thread_local std::optional<at::Tensor> its;

		return its;
	}

	at::Tensor vector_;
};

/* The vectors of one call. */
struct Batch {
	SumWorkPtr work;
	double started_s;
	int64_t counted_bytes; /* for the statistics of all-reduce; -1: another collective */
	size_t left;
	std::string error; /* of the first vector that failed */
};

/* A vector under way. If the network has no result, Python settles it. */
struct Vector {
	at::Tensor buffer;
	uint64_t lanes;
	uint32_t kind;
	uint64_t from, until; /* this worker's part, in bytes */
	int64_t size_bytes;   /* on the side that has all workers' values */
	std::function<WorkPtr(c10d::Backend &)> by_gloo; /* gloo's collective, into the buffer */
	After put; /* copies the result from the buffer to its tensors */
	at::Tensor lost{};
	std::shared_ptr<Batch> batch{};
	double limit_s = 0;
	int64_t number = 0;
	std::vector<uint32_t> contributors{};
	/* as endpoint_run set them */
	int event = EVENT_IDLE;
	uint32_t detail = 0;
	int64_t silent_ns = 0;
	/* set by Python: gloo has filled the buffer, or why there is no result */
	bool is_exact = false;
	std::string error{};
};

using VectorPtr = std::shared_ptr<Vector>;

constexpr int64_t LANE_BYTES = sizeof(uint32_t);

/* Whether a tensor's memory has its values in order, and is aligned to and a whole number of lanes. */
inline bool is_lanes(const at::Tensor &tensor)
{
	return is_dense(tensor) && (uintptr_t)tensor.data_ptr() % LANE_BYTES == 0 &&
	       tensor.nbytes() % LANE_BYTES == 0;
}

/* Copies a tensor's values to an address, unless they are there already. */
inline void read(char *to, const at::Tensor &tensor)
{
	auto dense = tensor.resolve_conj().resolve_neg().contiguous();

	if (dense.data_ptr() != to)
		memmove(to, dense.data_ptr(), dense.nbytes());
}

/* Copies the values at an address into a tensor, contiguous or not. */
inline void write(const at::Tensor &tensor, const char *from)
{
	auto dense = is_dense(tensor) ? tensor : at::empty(tensor.sizes(), tensor.scalar_type());

	memmove(dense.data_ptr(), from, dense.nbytes());
	if (!dense.is_same(tensor))
		tensor.copy_(dense);
}

/* A buffer for at least so many bytes: a whole number of lanes. */
inline at::Tensor room_for(int64_t size_bytes)
{
	return at::empty({(size_bytes + LANE_BYTES - 1) / LANE_BYTES * LANE_BYTES}, at::kByte);
}

inline char *bytes_of(const at::Tensor &buffer)
{
	return (char *)buffer.data_ptr();
}

inline Vector of_floats(const at::Tensor &buffer, int64_t from, int64_t until)
{
	return {.buffer = buffer,
		.lanes = (uint64_t)buffer.numel(),
		.kind = VECTOR_FLOATS,
		.from = (uint64_t)(LANE_BYTES * from),
		.until = (uint64_t)(LANE_BYTES * until),
		.size_bytes = LANE_BYTES * buffer.numel(),
		.by_gloo =
			[buffer](c10d::Backend &gloo) {
				Tensors all{alias(buffer, at::kFloat)};

				return gloo.allreduce(all, c10d::AllreduceOptions());
			},
		.put = {},
		.lost = Lost::of(buffer)};
}

/* All workers' sum or mean of a tensor. */
inline Vector summed(const at::Tensor &tensor, bool average, int workers, const BuffersPtr &buffers)
{
	bool is_direct = tensor.scalar_type() == at::kFloat && is_dense(tensor);
	/* a view, because the script may give the tensor other memory before the sum arrives */
	auto buffer = is_direct ? tensor.view({-1}) : buffers->take(tensor.numel());

	if (!is_direct)
		buffer.view(tensor.sizes()).copy_(tensor);
	auto vector = of_floats(buffer, 0, buffer.numel());

	vector.put = [=] {
		if (average) /* a sum that lacks workers is already scaled to all */
			buffer.div_((double)workers);
		if (is_direct)
			return;
		tensor.copy_(buffer.view(tensor.sizes()));
		buffers->give(buffer);
	};
	return vector;
}

/* This worker's part of the sum of `inputs` over all workers: a tensor for each worker, or one for all. */
inline Vector scattered(const at::Tensor &output, const Tensors &inputs, int rank, int workers, bool average,
			const BuffersPtr &buffers)
{
	int64_t part = output.numel(), at = 0;
	auto buffer = buffers->take(workers * part);

	for (const auto &input : inputs) {
		buffer.narrow(0, at, input.numel()).view(input.sizes()).copy_(input);
		at += input.numel();
	}
	auto vector = of_floats(buffer, rank * part, (rank + 1) * part);

	vector.put = [=] {
		auto mine = buffer.narrow(0, rank * part, part);

		if (average)
			mine.div_((double)workers);
		output.copy_(mine.view(output.sizes()));
		buffers->give(buffer);
	};
	return vector;
}

/* All workers' `mine`, in the order of ranks, into `outputs`: a tensor for each worker, or one for all. */
inline Vector gathered(const Tensors &outputs, const at::Tensor &mine, int rank, int workers)
{
	auto part = (int64_t)mine.nbytes(), whole = workers * part;
	bool is_direct = outputs.size() == 1 && is_lanes(outputs[0]);
	auto buffer = is_direct ? outputs[0].view({-1}) : room_for(whole);

	read(bytes_of(buffer) + rank * part, mine);
	return {.buffer = buffer,
		.lanes = (uint64_t)((whole + LANE_BYTES - 1) / LANE_BYTES),
		.kind = VECTOR_GATHERED,
		.from = (uint64_t)(rank * part),
		.until = (uint64_t)((rank + 1) * part),
		.size_bytes = whole,
		.by_gloo =
			[=](c10d::Backend &gloo) {
				auto bytes = alias(buffer, at::kByte).narrow(0, 0, whole);
				std::vector<Tensors> parts{bytes.split(part)};
				Tensors own{parts[0][rank].clone()};

				return gloo.allgather(parts, own, c10d::AllgatherOptions());
			},
		.put =
			[=] {
				const char *from = bytes_of(buffer);

				if (is_direct)
					return;
				for (const auto &output : outputs) {
					write(output, from);
					from += output.nbytes();
				}
			}};
}

/*
 * Whether each worker can itself reduce gathered tensors to the result that gloo would have: integers of one
 * type, for which every order has the same result. Fractions have another result in gloo's order.
 */
inline bool are_reduced_here(const Tensors &tensors, const ReduceOp &operation)
{
	for (const auto &tensor : tensors)
		if (!is_plain(tensor) || !is_gloos(tensor) ||
		    !c10::isIntegralType(tensor.scalar_type(), false) ||
		    tensor.scalar_type() != tensors[0].scalar_type())
			return false;
	return !tensors.empty() && (operation == ReduceOp::SUM || operation == ReduceOp::PRODUCT ||
				    operation == ReduceOp::MIN || operation == ReduceOp::MAX);
}

/* Reduces `part` into `sum`. */
inline void reduce_into(at::Tensor &sum, const at::Tensor &part, const ReduceOp &operation)
{
	if (operation == ReduceOp::SUM)
		sum.add_(part);
	else if (operation == ReduceOp::PRODUCT)
		sum.mul_(part);
	else if (operation == ReduceOp::MIN)
		at::minimum_out(sum, sum, part);
	else
		at::maximum_out(sum, sum, part);
}

/* A tensor whose values all workers gather, and each reduces in the order of ranks. */
inline Vector reduced_here(const at::Tensor &tensor, const ReduceOp &operation, int rank, int workers)
{
	auto all = at::empty({workers, tensor.numel()}, tensor.scalar_type());
	auto vector = gathered({all}, tensor, rank, workers);
	/* not a view, so that torch does not count writes to it as changes of the script's tensor */
	auto flat = alias(tensor, tensor.scalar_type());

	vector.size_bytes = (int64_t)tensor.nbytes();
	vector.put = [=, put = vector.put] {
		put();
		auto sum = all[0];

		for (int other = 1; other < workers; other++)
			reduce_into(sum, all[other], operation);
		flat.copy_(sum);
	};
	return vector;
}

/* Sends a tensor of the worker `root` to all. */
inline Vector broadcast_of(const at::Tensor &tensor, int rank, int root)
{
	auto whole = (int64_t)tensor.nbytes();
	bool is_direct = is_lanes(tensor);
	auto buffer = is_direct ? tensor.view({-1}) : room_for(whole);

	if (rank == root)
		read(bytes_of(buffer), tensor);
	return {.buffer = buffer,
		.lanes = (uint64_t)((whole + LANE_BYTES - 1) / LANE_BYTES),
		.kind = VECTOR_GATHERED,
		.from = 0,
		.until = rank == root ? (uint64_t)whole : 0,
		.size_bytes = whole,
		.by_gloo =
			[=](c10d::Backend &gloo) {
				c10d::BroadcastOptions options;
				Tensors all{alias(buffer, at::kByte).narrow(0, 0, whole)};

				options.rootRank = root;
				return gloo.broadcast(all, options);
			},
		.put =
			[=] {
				if (!is_direct && rank != root)
					write(tensor, bytes_of(buffer));
			}};
}

} // namespace inc
