# %% [markdown]
# # golow in a notebook
#
# The cells of this file open as a notebook in VS Code, PyCharm and, by jupytext, in Jupyter. It
# also runs as a script.

# %%
import golow

# %% [markdown]
# One call runs the model at every level that is named, checks each against float64 and races them.

# %%
result = golow.compare("lenet5", batch=8, levels=["eager", "torchscript"], time_limit=3)
result.table()

# %% [markdown]
# A row a level: times in seconds, sizes in bytes.

# %%
frame = result.to_pandas()
print(frame[["level", "verdict", "time", "ratio", "word", "allocated_peak"]].to_string())

# %% [markdown]
# The record holds every raw sample. Here the median of each block, in microseconds.

# %%
for block in result.run("torchscript").blocks:
    median = sorted(block.host_ns)[len(block.host_ns) // 2] / 1000
    print(f"round {block.round}, place {block.position}: {median:.0f} us, wait {block.wait_share}")

# %% [markdown]
# `result.save("runs")` writes it all; `golow show` prints it again.
