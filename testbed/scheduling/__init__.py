"""What a policy is shown and what it may answer: jobs, circuits, bandwidth and switches in the notation of
P4INC-AOI's section IV. Pure, and owns no policy.
"""
