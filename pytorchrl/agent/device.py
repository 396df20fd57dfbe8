"""The device that a name means on this machine."""

import torch


def resolve_device(device: torch.device | str) -> torch.device:
    """A device that exists here; "auto" is the first CUDA device, or the CPU where there is none.

    Raises:
        ValueError: torch knows no such device, or this machine does not have it.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise ValueError(f'device must be "auto", "cpu", "cuda" or "cuda:0" and so on, got {device!r}') from None
    if resolved.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (resolved.index or 0) >= found:
            has = f"{found} CUDA device{'s' * (found != 1)}" if found else "no CUDA device"
            raise ValueError(
                f'device {str(device)!r}: torch {torch.__version__} finds {has} here; device="auto" takes a GPU where '
                f'there is one, device="cpu" works everywhere'
            )
    return resolved
