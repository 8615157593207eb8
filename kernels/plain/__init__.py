"""What each Triton kernel computes, in torch: the oracle of its tests."""
