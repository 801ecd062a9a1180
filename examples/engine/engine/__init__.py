# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a language model whose layers, heads and keys are split over the ranks of a Tendon world.

    gguf_file  -> convert -> weights   the file that is shipped, the mapped file, one rank's part of it
    tokenizer                          text to tokens and back
    layout     -> moves                which rank does what, and everything that goes between ranks
    step       -> sequences            what the controller says, and what a worker knows of it
    kv_cache   -> batch -> model       where keys lie, one step's rows, and the decoder
    sampler    -> runner               the next tokens; StepInputs in, StepOutputs out
    nursery    -> worker               what workers are forked from, and one of them
    early, flags, signals, processes -> run    what `make engine` starts, and how it ends
"""
