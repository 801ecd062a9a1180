# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a language model whose layers, heads and keys are split over the ranks of a Tendon world.

    gguf_file  -> convert -> weights   the shipped file, the mapped file, one rank's part of it
    tokenizer                          text to tokens and back
    layout     -> moves                the work of each rank, and all transfers between ranks
    step       -> sequences            the controller's messages, and a worker's state of sequences
    kv_cache   -> batch -> model       the places of keys, one step's rows, and the decoder
    sampler    -> runner               the next tokens; StepInputs in, StepOutputs out
    nursery    -> worker               the process that forks workers, and a worker
    early, flags, signals, processes -> run    the program of `make engine`, and its end
"""
