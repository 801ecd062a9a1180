# SPDX-License-Identifier: Apache-2.0
"""The engine's HTTP endpoint, in the shapes of OpenAI's API: between clients and the controller.

    errors   -> fields -> sampling -> prompts -> asked   the contents of a request, and its errors
    messages -> link                                     messages to and from the controller
    choice   -> exchange -> shapes -> replies            tokens to text, text to replies
    status   -> metrics, live                            the controller's status
    limits   -> source -> door, bodies                   connections and their bodies
    all these -> app -> serving                          routes, and the server

Everything runs in one event loop, except the reader of the pipe (link) and the tokenizing of long texts (prompts).
"""
