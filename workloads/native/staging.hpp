/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expresses calls that gloo refuses and NCCL accepts in terms that gloo has: bytes instead of types that gloo
 * lacks, sums instead of averages, wider types instead of narrow ones.
 *
 * Gloo gets contiguous tensors of one dimension, on the memory of the script's tensors where possible, but
 * never views of them. So torch does not count writes to them as changes, and any thread may write to tensors
 * made in inference mode.
 */
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <optional>

#include "after.hpp"

namespace inc {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using Premultiplied = c10d::NCCLPreMulSumSupplement;
#else
using Premultiplied = c10d::PreMulSumSupplement;
#endif

using c10d::ReduceOp;

/* Whether packets can carry a tensor's values unchanged. */
inline bool is_plain(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
	       !tensor.is_quantized();
}

/* Whether gloo supports the type in every collective. */
inline bool is_gloos(at::ScalarType type)
{
	switch (type) {
	case at::kFloat:
	case at::kDouble:
	case at::kHalf:
	case at::kBFloat16:
	case at::kChar:
	case at::kByte:
	case at::kInt:
	case at::kLong:
	case at::kBool:
		return true;
	default:
		return false;
	}
}

/* Whether a tensor's memory has its values in order. */
inline bool is_dense(const at::Tensor &tensor)
{
	return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* Whether gloo accepts a tensor unchanged. A tensor that is not plain is passed to gloo, which refuses it. */
inline bool is_gloos(const at::Tensor &tensor)
{
	return !is_plain(tensor) ||
	       (is_gloos(tensor.scalar_type()) && is_dense(tensor) && !tensor.is_inference());
}

template <typename Item> bool is_gloos(const std::vector<Item> &items)
{
	for (const auto &item : items)
		if (!is_gloos(item))
			return false;
	return true;
}

template <typename Item> bool are_plain(const std::vector<Item> &items)
{
	for (const auto &item : items)
		if constexpr (std::is_same_v<Item, at::Tensor>) {
			if (!is_plain(item))
				return false;
		} else if (!are_plain(item)) {
			return false;
		}
	return true;
}

/* Whether gloo accepts `whole` as the parts of all workers: it compares shapes where NCCL counts elements. */
inline bool are_rows(const at::Tensor &whole, const at::Tensor &part, int workers)
{
	if (!is_plain(whole) || !is_plain(part) || whole.numel() != workers * part.numel())
		return true; /* left to gloo, which raises its error */
	return part.dim() && whole.dim() == part.dim() && whole.size(0) == workers * part.size(0) &&
	       whole.sizes().slice(1) == part.sizes().slice(1);
}

/* A 1-D tensor of a type on the memory of a dense tensor, which it keeps alive. */
inline at::Tensor alias(const at::Tensor &tensor, at::ScalarType type)
{
	c10::InferenceMode none(false);
	int64_t elements = (int64_t)(tensor.nbytes() / c10::elementSize(type));

	return at::from_blob(tensor.data_ptr(), {elements}, [tensor](void *) {},
			     at::TensorOptions().dtype(type).device(at::kCPU));
}

/* Whether all have as many elements as the first. */
inline bool are_alike(const Tensors &tensors)
{
	for (const auto &tensor : tensors)
		if (tensor.numel() != tensors[0].numel())
			return false;
	return true;
}

template <typename Item> Tensors flat(const std::vector<Item> &items)
{
	Tensors all;

	for (const auto &item : items)
		if constexpr (std::is_same_v<Item, at::Tensor>)
			all.push_back(item);
		else
			all.insert(all.end(), item.begin(), item.end());
	return all;
}

inline bool are_of_a_type(const Tensors &outputs, const Tensors &inputs)
{
	for (const auto *tensors : {&outputs, &inputs})
		for (const auto &tensor : *tensors)
			if (tensor.scalar_type() != outputs[0].scalar_type())
				return false;
	return true;
}

/* Converts sizes along a tensor's first dimension to numbers of elements of the tensor staged for it. */
inline std::vector<int64_t> in_elements(const std::vector<int64_t> &sizes, const at::Tensor &tensor,
					const at::Tensor &staged)
{
	std::vector<int64_t> all;

	for (auto size : sizes)
		all.push_back(tensor.size(0) ? size * (staged.numel() / tensor.size(0)) : 0);
	return all;
}

inline std::vector<int64_t> elements(const Tensors &tensors)
{
	std::vector<int64_t> all;

	for (const auto &tensor : tensors)
		all.push_back(tensor.numel());
	return all;
}

/* Joins all tensors' values into one tensor; divide() is the inverse. */
inline at::Tensor joined(const Tensors &parts)
{
	c10::InferenceMode none(false);

	return at::cat(parts).detach();
}

inline void divide(const at::Tensor &whole, const Tensors &parts)
{
	int64_t at = 0;

	for (const auto &part : parts) {
		part.copy_(whole.narrow(0, at, part.numel()));
		at += part.numel();
	}
}

/* Replaces the script's tensors in a call of gloo, and finishes the call afterwards. */
class Staging {
  public:
	/* A tensor for gloo to read, and one for it to write, or to read and write. */
	virtual at::Tensor read(const at::Tensor &tensor) = 0;
	virtual at::Tensor written(const at::Tensor &tensor) = 0;
	virtual ~Staging() = default;

	Tensors read(const Tensors &tensors)
	{
		Tensors all;

		for (const auto &tensor : tensors)
			all.push_back(read(tensor));
		return all;
	}

	Tensors written(const Tensors &tensors)
	{
		Tensors all;

		for (const auto &tensor : tensors)
			all.push_back(written(tensor));
		return all;
	}

	template <typename Items> std::vector<Items> read(const std::vector<Items> &lists)
	{
		std::vector<Items> all;

		for (const auto &list : lists)
			all.push_back(read(list));
		return all;
	}

	template <typename Items> std::vector<Items> written(const std::vector<Items> &lists)
	{
		std::vector<Items> all;

		for (const auto &list : lists)
			all.push_back(written(list));
		return all;
	}

	/*
	 * Returns the function to call when gloo is done. It holds references to what it needs of this
	 * object.
	 */
	virtual After after() const
	{
		return [copies = copies_] {
			for (const auto &[to, from] : copies)
				to.copy_(from);
		};
	}

  protected:
	static at::Tensor dense(const at::Tensor &tensor)
	{
		return tensor.resolve_conj().resolve_neg().contiguous();
	}

	/* Replaces a tensor by a dense one, whose values are copied back after the call. */
	at::Tensor replaced(const at::Tensor &tensor, const at::Tensor &values)
	{
		copies_.push_back({tensor, values.view(tensor.sizes())});
		return values;
	}

  private:
	struct Copy {
		at::Tensor to, from;
	};
	std::vector<Copy> copies_;
};

/* For collectives that move values: types that gloo lacks are moved as bytes. */
class Moved : public Staging {
  public:
	using Staging::read;
	using Staging::written;

	at::Tensor read(const at::Tensor &tensor) override
	{
		c10::InferenceMode all_tensors;

		return alias(dense(tensor), type_of(tensor));
	}

	at::Tensor written(const at::Tensor &tensor) override
	{
		c10::InferenceMode all_tensors;

		if (is_dense(tensor))
			return alias(tensor, type_of(tensor));
		return alias(replaced(tensor, dense(tensor)), type_of(tensor));
	}

  private:
	static at::ScalarType type_of(const at::Tensor &tensor)
	{
		return is_gloos(tensor.scalar_type()) ? tensor.scalar_type() : at::kByte;
	}
};

/* For collectives that reduce: by gloo's operations on gloo's types. */
class Reduced : public Staging {
  public:
	using Staging::read;
	using Staging::written;

	Reduced(const ReduceOp &given, const Tensors &tensors, int workers)
	    : operation(given), divisor_(workers)
	{
		is_mean_ = given == ReduceOp::AVG;
		if (given == ReduceOp::PREMUL_SUM)
			factor_ = factor_of(given, tensors);
		if (is_mean_ || factor_)
			operation = ReduceOp::SUM;
		for (const auto &tensor : tensors) {
			if (!is_plain(tensor) || tensor.scalar_type() != at::kBool)
				continue;
			TORCH_CHECK(!is_mean_, "Cannot use ReduceOp.AVG with Boolean inputs");
			if (operation == ReduceOp::SUM)
				operation = ReduceOp::MAX; /* both mean "or"; a sum may be 2, no bool */
		}
	}

	/*
	 * Whether gloo has types for all tensors' values. It has none for uint64, whose values fit in no
	 * wider type.
	 */
	static bool has_types(const Tensors &tensors)
	{
		if (tensors.empty() || !are_plain(tensors))
			return false;
		for (const auto &tensor : tensors)
			if (!is_gloos(wide(tensor.scalar_type(), false)))
				return false;
		return true;
	}

	/* Whether gloo refuses the call as it is, but accepts it with staged tensors. */
	static bool is_needed(const ReduceOp &operation, const Tensors &tensors)
	{
		return has_types(tensors) &&
		       (operation == ReduceOp::AVG || operation == ReduceOp::PREMUL_SUM ||
			(operation == ReduceOp::SUM && tensors[0].scalar_type() == at::kBool) ||
			!is_gloos(tensors));
	}

	at::Tensor read(const at::Tensor &tensor) override
	{
		c10::InferenceMode all_tensors;
		auto type = wide(tensor.scalar_type(), is_mean_);
		auto values = dense(tensor).to(type);

		if (factor_)
			values = values.mul(*factor_);
		return alias(values, type);
	}

	at::Tensor written(const at::Tensor &tensor) override
	{
		c10::InferenceMode all_tensors;
		auto type = wide(tensor.scalar_type(), is_mean_);
		bool in_place = is_dense(tensor) && type == tensor.scalar_type() && !factor_;
		auto values = alias(in_place ? tensor : replaced(tensor, scaled(tensor, type)), type);

		sums_.push_back(values);
		return values;
	}

	/* Returns a function that divides sums into means, if the call asks for means. */
	std::function<void(const Tensors &)> mean() const
	{
		if (!is_mean_)
			return [](const Tensors &) {};
		return [divisor = divisor_](const Tensors &sums) {
			for (const auto &sum : sums)
				if (c10::isIntegralType(sum.scalar_type(), true))
					sum.div_(divisor, "trunc"); /* towards zero, as in NCCL */
				else
					sum.div_(divisor);
		};
	}

	After after() const override
	{
		return [copy = Staging::after(), mean = mean(), sums = sums_] {
			mean(sums);
			copy();
		};
	}

	ReduceOp operation; /* gloo's operation */

  private:
	/* The values to sum in place of a tensor's, in memory of their own. */
	at::Tensor scaled(const at::Tensor &tensor, at::ScalarType type) const
	{
		auto values = dense(tensor).to(type);

		if (factor_)
			return values.mul(*factor_);
		return values.is_same(tensor) ? values.clone() : values;
	}

	/*
	 * The type in which gloo sums a type. A mean of halves is computed as in the network, and rounded
	 * once.
	 */
	static at::ScalarType wide(at::ScalarType type, bool is_mean)
	{
		switch (type) {
		case at::kShort:
		case at::kUInt16:
			return at::kInt;
		case at::kUInt32:
			return at::kLong;
		case at::kFloat8_e4m3fn:
		case at::kFloat8_e5m2:
			return at::kFloat;
		case at::kHalf:
		case at::kBFloat16:
			return is_mean ? at::kFloat : type;
		default:
			return type;
		}
	}

	static at::Scalar factor_of(const ReduceOp &operation, const Tensors &tensors)
	{
		const auto &premul =
			*static_cast<const Premultiplied *>(operation.supplement_.get());

		for (const auto &tensor : tensors)
			TORCH_CHECK(at::isFloatingType(tensor.scalar_type()),
				    "PreMulSum Data type must be half, float, bfloat16 or double");
		if (premul.tensor_factor.defined())
			return premul.tensor_factor.item();
		return premul.double_factor;
	}

	bool is_mean_ = false;
	std::optional<at::Scalar> factor_;
	int64_t divisor_;
	Tensors sums_;
};

} // namespace inc
