"""The models of the zoo that do not take images: text and recommendations. Imports no torch."""

from __future__ import annotations

from golow.models.criteo import DENSE, ROWS, capped
from golow.models.entry import Entry, Field

OTHERS = (
    Entry(
        name="bert_base",
        build="golow.models.bert:bert_base",
        parameters=109_482_240,
        summary="BERT-base with its pooler (Devlin et al. 2019): an encoder of tokens",
        classes=30_522,
        fields=(Field("tokens"), Field("mask", "mask"), Field("types", below=(2,))),
        sequence=128,
        longest=512,
        loss="mse_of_outputs",
        initialisation="transformer",
    ),
    Entry(
        name="gpt2_small",
        build="golow.models.gpt2:gpt2_small",
        parameters=124_439_808,
        summary="GPT-2 (Radford et al. 2019): a decoder whose head shares the embedding",
        classes=50_257,
        fields=(Field("tokens"),),
        sequence=128,
        longest=1024,
        loss="token_cross_entropy",
        initialisation="transformer",
    ),
    Entry(
        name="llama_tiny",
        build="golow.models.llama:llama_tiny",
        parameters=4_484_352,
        summary="a small Llama (Touvron et al. 2023): RMS norm, rotary, grouped heads, SwiGLU",
        classes=256,
        fields=(Field("tokens"),),
        sequence=128,
        longest=1024,
        loss="token_cross_entropy",
        initialisation="transformer",
    ),
    Entry(
        name="lstm",
        build="golow.models.lstm:lstm",
        parameters=19_780_400,
        summary="the medium LSTM language model of Zaremba et al. 2014: two layers of 650",
        classes=10_000,
        fields=(Field("tokens"),),
        sequence=35,
        loss="token_cross_entropy",
    ),
    Entry(
        name="gnmt",
        build="golow.models.gnmt:gnmt",
        parameters=160_671_297,
        summary="GNMTv2 (Wu et al. 2016): attention over an LSTM encoder and decoder",
        classes=32_320,
        fields=(Field("source"), Field("mask", "mask"), Field("target")),
        sequence=50,
        loss="token_cross_entropy",
    ),
    Entry(
        name="ncf",
        build="golow.models.ncf:ncf",
        parameters=31_832_577,
        summary="NeuMF (He et al. 2017), MLPerf's sizes: embeddings of users and items",
        fields=(
            Field("user", shape=(), below=(138_493,)),
            Field("item", shape=(), below=(26_744,)),
        ),
        loss="binary_cross_entropy_with_logits",
    ),
    Entry(
        name="dlrm_small",
        build="golow.models.dlrm:dlrm_small",
        parameters=13_924_673,
        summary="DLRM (Naumov et al. 2019) for Criteo's Kaggle data, tables of 100,000 rows",
        fields=(
            Field("numbers", "numbers", (DENSE,)),
            Field("categories", shape=(len(ROWS),), below=capped()),
        ),
        loss="binary_cross_entropy_with_logits",
    ),
)
