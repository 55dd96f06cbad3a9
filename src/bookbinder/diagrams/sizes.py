"""The sizes of the letters in shapes, for the programs of diagrams."""

__all__ = ["SIZES"]

# Pairwise different, so that no letter can stand for another. Heads divide the width,
# heads of keys divide heads, and rotary turns pairs of features.
SIZES = {
    "B": 2,
    "H_kv": 3,
    "d_k": 4,
    "T": 5,
    "H": 6,
    "S": 7,
    "d_v": 9,
    "L": 10,
    "V": 11,
    "C": 13,
    "d_ff": 17,
    "D": 24,
}
