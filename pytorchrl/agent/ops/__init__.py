"""Operations that are faster than the composition of torch's own, which each of them equals and falls back to."""
