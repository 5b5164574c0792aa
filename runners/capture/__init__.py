"""Find what a PyTorch program spends its time on, and write it as problems with the shapes that really occur.

    from runners.capture import capture

    with capture("problems") as captured:
        model(inputs)
    print(captured.table())

`recording` watches calls, `ranking` orders them, `extraction` writes their computation as torch code, and `writing`
makes problem folders. Nothing here needs the site.
"""

from runners.capture.session import Captured, capture

__all__ = ["Captured", "capture"]
