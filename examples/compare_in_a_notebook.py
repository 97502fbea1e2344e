# %% [markdown]
# # golow in a notebook
#
# Open this file as a notebook in VS Code, PyCharm or, with jupytext, Jupyter. It also runs as a
# script.

# %%
import golow

# %% [markdown]
# One call runs the model at these levels, checks each against float64 and times them in turn.

# %%
result = golow.compare("lenet5", batch=8, levels=["eager", "torchscript"], time_limit=3)
result.table()

# %% [markdown]
# One row per level: times in seconds, sizes in bytes.

# %%
frame = result.to_pandas()
print(frame[["level", "verdict", "time", "ratio", "word", "allocated_peak"]].to_string())

# %% [markdown]
# The record contains every raw sample. This prints the median of each block, in microseconds.

# %%
for block in result.run("torchscript").blocks:
    median = sorted(block.host_ns)[len(block.host_ns) // 2] / 1000
    print(f"round {block.round}, place {block.position}: {median:.0f} us, wait {block.wait_share}")

# %% [markdown]
# `result.save("runs")` writes the record to a folder; `golow show` prints it again.
