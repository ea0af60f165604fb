/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers for sums of tensors that are not contiguous binary32. */
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <mutex>

namespace inc {

/* A pool of buffers. They are reused because the kernel must clear new memory first, page by page. */
class Buffers {
  public:
	/* Returns a binary32 vector with undefined contents. */
	at::Tensor take(int64_t elements)
	{
		std::unique_lock<std::mutex> lock(mutex_);
		auto best = free_.end();

		for (auto each = free_.begin(); each != free_.end(); ++each)
			if (elements <= each->numel() && each->numel() <= 2 * elements &&
			    (best == free_.end() || each->numel() < best->numel()))
				best = each;
		if (best == free_.end()) {
			lock.unlock();
			return at::empty({elements}, at::kFloat);
		}
		auto whole = *best;

		free_.erase(best);
		return whole.narrow(0, 0, elements);
	}

	/* Returns a vector that is no longer used to the pool. */
	void give(const at::Tensor &vector)
	{
		auto elements = (int64_t)(vector.storage().nbytes() / sizeof(float));
		auto whole = at::empty({0}, at::kFloat).set_(vector.storage(), 0, {elements}, {1});
		std::lock_guard<std::mutex> lock(mutex_);

		free_.push_front(whole);
		if (free_.size() > MOST)
			free_.pop_back();
	}

  private:
	static constexpr size_t MOST = 8; /* in practice, as many vectors of one size are in use at once */

	std::mutex mutex_;
	std::deque<at::Tensor> free_;
};

} // namespace inc
