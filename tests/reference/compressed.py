"""Compressed weights, coded and decoded one entry at a time from the description of the layout."""

from __future__ import annotations

import math
import struct


def decode(weights, n_labels, n_features):
    """{(label, feature): weight} of all entries with q ≠ 0, from the bytes of the arrays."""
    values, places = weights.values.tolist(), weights.places.tobytes()
    found = {}
    for block, (entry_base, byte_base) in enumerate(weights.bases.tolist()):
        starts = weights.starts[block].tolist()
        for feature in range(n_features):
            (entry, byte), (entry_end, byte_end) = starts[feature], starts[feature + 1]
            size = entry_end - entry
            is_wide = size > 0 and byte_end - byte == 2 * size
            assert is_wide or byte_end - byte == size
            label = 0
            for number in range(size):
                if is_wide:
                    (label,) = struct.unpack_from("<H", places, byte_base + byte + 2 * number)
                else:
                    label += places[byte_base + byte + number]
                q = values[entry_base + entry + number]
                place = block * weights.labels_per_block + label
                assert place < n_labels
                if q:
                    assert (place, feature) not in found
                    found[place, feature] = float(weights.scale[place]) * q
    return found


def quantise(row, bits, threshold, float32):
    """A label's weights, rounded to whole multiples of its scale."""
    most = 2 ** (bits - 1) - 1
    scale = float(float32(max(map(abs, row), default=0.0) / most))
    rounded = []
    for weight in row:
        ratio = weight / scale if scale > 0.0 else 0.0
        q = math.floor(abs(ratio) + 0.5)
        q -= q % 2 and abs(ratio) + 0.5 == q  # halves go to even numbers
        q = min(q, most) if abs(weight) >= threshold else 0
        rounded.append(math.copysign(q * scale, weight) if q else 0.0)
    return rounded
