/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of sums that are no binary32 in one piece. */
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <mutex>

namespace inc {

/* It is used again: what a system gives anew has to be cleared by it first, page by page. */
class Buffers {
  public:
	/* A binary32 vector, with anything in it. */
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

	/* Takes back a vector that nobody uses any more. */
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
	static constexpr size_t MOST = 8; /* as many as vectors of one size are under way at a time, in practice */

	std::mutex mutex_;
	std::deque<at::Tensor> free_;
};

} // namespace inc
