"""One engine through waves of load, under the policy and under what could be there instead."""
