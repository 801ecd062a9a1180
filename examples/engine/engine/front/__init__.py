# SPDX-License-Identifier: Apache-2.0
"""The engine's HTTP endpoint, in the shapes of OpenAI's API: between clients and the controller.

    errors   -> fields -> sampling -> prompts -> asked   what a request says, and what is wrong with it
    messages -> link                                     what goes to the controller and comes from it
    choice   -> exchange -> shapes -> replies            tokens to text, text to what clients read
    status   -> metrics, live                            what the controller says of itself
    limits   -> source -> door, bodies                   who may be connected, and what arrives
    all these -> app -> serving                          routes, and the server

All runs in one event loop, but for what reads the pipe (link) and for long texts (prompts).
"""
