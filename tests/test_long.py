"""Length costs rows, not squares: 32,768 tokens go through everything in little memory, at most 256 rows at a time."""

import subprocess
import sys

import pytest

PROGRAM = """
import io, sys
import numpy as np
from attnviz.collect import HeatmapCollector, collect
from attnviz.maps import AttentionMap
from attnviz.render.panels import Look, heads_board, queries_board
from attnviz.tokens import Tokens

n, most, what = 32_768, 256, sys.argv[1]

class Guarded:
    shape = (2, n, n)
    asked = 0

    def rows(self, start, stop):
        if stop - start > most:
            raise MemoryError(f"asked for {stop - start} rows")
        self.asked += stop - start
        block = np.full((2, stop - start, n), 0.5 / n, np.float32)
        block[:, np.arange(stop - start), np.arange(start, stop)] += np.float32(0.5)
        return block

tokens, weights = Tokens.of(f"t{i}" for i in range(n)), Guarded()
one = AttentionMap("a", 0, (0, 1), weights, tokens, tokens)
if what == "query":
    one = one.pick(queries=[5, n - 1])
if what == "png":
    from attnviz.render.png import write_png as write
    collector = HeatmapCollector(512, 512)
else:
    from attnviz.render.plaintext import text_style, write_text as write
    from attnviz.render.terminal import tile_limits
    collector = HeatmapCollector(*tile_limits(text_style(Look()), 2, what == "overview"))
collect([one], [collector])
(heatmap,) = collector.result()
assert weights.asked == (2 if what == "query" else n), weights.asked
tiles = heatmap.values.shape[1]
if what != "query":
    diagonal = 0.5 / -(-n // tiles) + 0.5 / n
    assert abs(float(heatmap.values[1, 3, 3]) - diagonal) < 1e-6, heatmap.values[1, 3, 3]
board = (queries_board if what == "query" else heads_board)([heatmap], "long")
out = io.BytesIO()
write(board, Look(), out)
assert len(out.getvalue()) > 1000
status = open("/proc/self/status").read()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory on Linux only")
@pytest.mark.parametrize("what", ["terminal", "overview", "query", "png"])
def test_a_map_of_32768_tokens_is_drawn_in_under_300_mb(what: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300
