/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives that the network carries, as vectors of the compiled endpoint: a buffer each, which is the
 * tensor's own memory where that will do, else a copy.
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

/* Where a sum's lost part is to be written, for the call that this thread makes (workloads/feedback.py). */
class Lost {
  public:
	explicit Lost(at::Tensor vector) : vector_(std::move(vector)) {}

	void begin() const { wanted() = vector_; }
	static void end() { wanted().reset(); }

	/* Undefined where the call of such a vector asks for nothing. */
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
	int64_t counted_bytes; /* for the statistics of all-reduce; -1: it is no such call */
	size_t left;
	std::string error; /* of the first that failed */
};

/* A vector under way. Where the network has none of it, Python says what becomes of it. */
struct Vector {
	at::Tensor buffer;
	uint64_t lanes;
	uint32_t kind;
	uint64_t from, until; /* bytes of it: this worker's part */
	int64_t size_bytes;   /* of all workers' side */
	std::function<WorkPtr(c10d::Backend &)> by_gloo; /* into the buffer */
	After put; /* what came where it belongs */
	at::Tensor lost{};
	std::shared_ptr<Batch> batch{};
	double limit_s = 0;
	int64_t number = 0;
	std::vector<uint32_t> contributors{};
	/* as endpoint_run left them */
	int event = EVENT_IDLE;
	uint32_t detail = 0;
	int64_t silent_ns = 0;
	/* as Python said: that gloo has filled the buffer, or why there is nothing */
	bool is_exact = false;
	std::string error{};
};

using VectorPtr = std::shared_ptr<Vector>;

constexpr int64_t LANE_BYTES = sizeof(uint32_t);

/* Whether its memory is its values in order, and a whole number of lanes. */
inline bool is_lanes(const at::Tensor &tensor)
{
	return is_dense(tensor) && (uintptr_t)tensor.data_ptr() % LANE_BYTES == 0 &&
	       tensor.nbytes() % LANE_BYTES == 0;
}

/* The bytes of its values, to the address, unless they are there. */
inline void read(char *to, const at::Tensor &tensor)
{
	auto dense = tensor.resolve_conj().resolve_neg().contiguous();

	if (dense.data_ptr() != to)
		memmove(to, dense.data_ptr(), dense.nbytes());
}

/* The values at the address into a tensor, in one piece or not. */
inline void write(const at::Tensor &tensor, const char *from)
{
	auto dense = is_dense(tensor) ? tensor : at::empty(tensor.sizes(), tensor.scalar_type());

	memmove(dense.data_ptr(), from, dense.nbytes());
	if (!dense.is_same(tensor))
		tensor.copy_(dense);
}

/* Room for so many bytes: a whole number of lanes. */
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

/* All workers' sum of a tensor, or their mean. */
inline Vector summed(const at::Tensor &tensor, bool average, int workers, const BuffersPtr &buffers)
{
	bool is_direct = tensor.scalar_type() == at::kFloat && is_dense(tensor);
	/* a view: the script may give the tensor other memory before the sum is there */
	auto buffer = is_direct ? tensor.view({-1}) : buffers->take(tensor.numel());

	if (!is_direct)
		buffer.view(tensor.sizes()).copy_(tensor);
	auto vector = of_floats(buffer, 0, buffer.numel());

	vector.put = [=] {
		if (average) /* a sum that lacks workers is as large as that of all */
			buffer.div_((double)workers);
		if (is_direct)
			return;
		tensor.copy_(buffer.view(tensor.sizes()));
		buffers->give(buffer);
	};
	return vector;
}

/* This worker's part of all workers' sum of `inputs`: a tensor for each worker, or one for all. */
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

/* All workers' `mine`, one behind the other in `outputs`: a tensor of each worker, or one of all. */
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
 * Whether each worker can reduce these by itself to what gloo would make of them: integers of one type, of which
 * every order has the same result. That of fractions is another in gloo's order.
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

/* The values of `sum` reduced with those of `part`, in its place. */
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

/* A tensor of which all workers gather each other's values, and each reduces them in the order of ranks. */
inline Vector reduced_here(const at::Tensor &tensor, const ReduceOp &operation, int rank, int workers)
{
	auto all = at::empty({workers, tensor.numel()}, tensor.scalar_type());
	auto vector = gathered({all}, tensor, rank, workers);
	/* no view: what is written there counts as no change of the script's */
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

/* A tensor of the worker `root`. */
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
