"""Recurrent layers as their JAX users write them: all products with the input are one, and a scan
goes over the time steps. As a loop that is written out, which other levels compile, the source of
eight layers of 50 steps took XLA minutes."""

from __future__ import annotations

from golow.lower.ir.graph import Graph, Value
from golow.lower.operators.recurrence import Recurrence

SHORTEST = 4
"""Time steps of a scan; fewer are written out."""

# x: [L, N, I], hidden: [N, R], cell: [N, H], the weights as PyTorch has them; the results [L, N, R]
# of every step, and of an LSTM also the cell's last state. All in one layer and direction.
FUNCTIONS = {
    "lstm": """
def lstm(
    x, hidden, cell, input_weight, hidden_weight, input_bias, hidden_bias, projection, reverse
):
    def step(state, gates):
        hidden, cell = state
        gates = gates + hidden @ hidden_weight.T
        entry, forget, new, out = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(entry) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(out) * jnp.tanh(cell)
        if projection is not None:
            hidden = hidden @ projection.T
        return (hidden, cell), hidden

    gates = x @ input_weight.T
    if input_bias is not None:
        gates = gates + (input_bias + hidden_bias)
    (_, last), results = lax.scan(step, (hidden, cell), gates, reverse=reverse)
    return results, last
""",
    "gru": """
def gru(x, hidden, input_weight, hidden_weight, input_bias, hidden_bias, reverse):
    def step(hidden, gates):
        own = hidden @ hidden_weight.T
        if hidden_bias is not None:
            own = own + hidden_bias
        (reset, update, new), (own_reset, own_update, own_new) = (
            jnp.split(each, 3, axis=1) for each in (gates, own)
        )
        reset, update = jax.nn.sigmoid(reset + own_reset), jax.nn.sigmoid(update + own_update)
        new = jnp.tanh(new + reset * own_new)
        hidden = new + update * (hidden - new)
        return hidden, hidden

    gates = x @ input_weight.T
    if input_bias is not None:
        gates = gates + input_bias
    return lax.scan(step, hidden, gates, reverse=reverse)[1]
""",
    "rnn_tanh": """
def rnn_tanh(x, hidden, input_weight, hidden_weight, input_bias, hidden_bias, reverse):
    def step(hidden, entry):
        hidden = jnp.tanh(entry + hidden @ hidden_weight.T)
        return hidden, hidden

    entries = x @ input_weight.T
    if input_bias is not None:
        entries = entries + (input_bias + hidden_bias)
    return lax.scan(step, hidden, entries, reverse=reverse)[1]
""",
}
FUNCTIONS["rnn_relu"] = (
    FUNCTIONS["rnn_tanh"].replace("rnn_tanh", "rnn_relu").replace("jnp.tanh", "jax.nn.relu")
)


def definitions(graph: Graph) -> str:
    """The source of the functions that the graph's recurrent layers call."""
    layers = map(Recurrence.of, graph.nodes)
    kinds = dict.fromkeys(layer.kind for layer in layers if layer is not None)
    return "".join(f"\n{FUNCTIONS[kind]}" for kind in kinds)


def keep_scans(graph: Graph) -> Graph:
    """Make each layer and direction of a recurrent network one operator; short ones are a loop."""
    from golow.lower.recognise.recurrences import (
        name_recurrences,
        unfold_linear_recurrences,
        unfold_recurrences,
    )

    return unfold_recurrences(name_recurrences(unfold_linear_recurrences(graph)), _is_long)


def _is_long(layer: Recurrence, values: dict[str, Value]) -> bool:
    return values[layer.x.name].shape[0] >= SHORTEST
