"""The interface of policies, the state that they are shown and the decision that they answer: jobs, circuits,
bandwidth and switches in the notation of P4INC-AOI's section IV. Pure, and owns no policy.
"""
