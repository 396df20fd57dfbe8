"""What processes print, apart from what depends on the processes before them."""


def without_compilation(printed: str) -> str:
    """Return what was printed without the line that kernels are compiled, which only the first process prints."""
    return "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("Compiling kernels"))
