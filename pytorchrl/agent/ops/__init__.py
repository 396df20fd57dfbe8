"""Operations that are faster than compositions of torch's own, which they equal and fall back to, and two-hot codes."""
