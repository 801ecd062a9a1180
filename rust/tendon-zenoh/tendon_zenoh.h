/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of Zenoh that Tendon uses (rust/tendon-zenoh), and the only way to it.
 *
 * Functions return TENDON_ZENOH_OK, or another number and the reason in `failure`, which may be
 * null. None waits for a peer, except tendon_zenoh_open() and tendon_zenoh_close(). No panic leaves
 * them.
 *
 * Threads of Zenoh call the callbacks, several at once, and so does the thread that calls one of
 * these functions. Zenoh may hold locks meanwhile: a callback calls nothing of this header except
 * tendon_zenoh_held_drop(). A context is dropped exactly once, after its last callback, and also
 * if a function fails. Texts are not terminated, and live until the call or callback returns.
 */
#ifndef TENDON_ZENOH_H
#define TENDON_ZENOH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENDON_ZENOH_OK 0
#define TENDON_ZENOH_FAILED 1
/* The configuration cannot be read: nothing was tried. */
#define TENDON_ZENOH_BAD_CONFIG 2

typedef struct tendon_zenoh_session tendon_zenoh_session;
/* A declaration or a request. */
typedef struct tendon_zenoh_declared tendon_zenoh_declared;
typedef struct tendon_zenoh_question tendon_zenoh_question;
/* The owner of received memory. */
typedef struct tendon_zenoh_held tendon_zenoh_held;

typedef struct {
  const char* data;
  size_t size;
} tendon_zenoh_text;

typedef struct {
  size_t size;
  char text[512];
} tendon_zenoh_failure;

typedef struct {
  void* data;
  void (*drop)(void* data);
} tendon_zenoh_context;

/* Memory of the caller, which nobody writes to until `release` is called: exactly once, by any
 * thread, also if the function fails. */
typedef struct {
  const uint8_t* data;
  size_t size;
  void* owner;
  void (*release)(void* owner);
} tendon_zenoh_lent;

/* Memory of Zenoh, valid until tendon_zenoh_held_drop(held); `held` is null if there are no bytes.
 * The bytes arrived from the network, or a put in this process lent them; they are a copy only if
 * they arrived in several pieces. */
typedef struct {
  const uint8_t* data;
  size_t size;
  tendon_zenoh_held* held;
} tendon_zenoh_received;

/* An entry of the configuration, like connect/endpoints, and its value in JSON5. */
typedef struct {
  tendon_zenoh_text key;
  tendon_zenoh_text value;
} tendon_zenoh_change;

typedef void (*tendon_zenoh_on_state)(void* context, int32_t is_up);
typedef void (*tendon_zenoh_on_token)(void* context, int32_t came, tendon_zenoh_text key);
/* Reports whether the publisher has a subscriber, as far as Zenoh knows. */
typedef void (*tendon_zenoh_on_matching)(void* context, int32_t somebody);
typedef void (*tendon_zenoh_on_key)(void* context, tendon_zenoh_text key);
/* The last call of a request, also if it was withdrawn or never made. `failed`: a process that was
 * asked did not answer in time, or answered with an error. */
typedef void (*tendon_zenoh_on_end)(void* context, int32_t failed);
/* The callee drops both `held`. `deleted`: a delete, which has no payload and the encoding of a put
 * that names none. `encoding` as Zenoh writes it: "application/json". */
typedef void (*tendon_zenoh_on_message)(void* context, int32_t deleted, tendon_zenoh_text key,
                                        tendon_zenoh_text encoding, tendon_zenoh_received payload,
                                        tendon_zenoh_received attachment);
/* The callee drops both `held` and owns the question; the key lives as long as the question. */
typedef void (*tendon_zenoh_on_question)(void* context, tendon_zenoh_question* question,
                                         tendon_zenoh_text key, tendon_zenoh_received payload,
                                         tendon_zenoh_received attachment);

/* `config` is a whole configuration in JSON5, to which the changes are then applied in order.
 * `on_state` reports whether anybody is connected, beginning with "no". */
int32_t tendon_zenoh_open(tendon_zenoh_text config, const tendon_zenoh_change* changes,
                          size_t change_count, tendon_zenoh_context context,
                          tendon_zenoh_on_state on_state, tendon_zenoh_session** opened,
                          tendon_zenoh_failure* failure);
/* Closes the session and withdraws all declarations. Not OK if that takes longer: it continues. */
int32_t tendon_zenoh_close(tendon_zenoh_session* session, uint64_t timeout_ms);
/* Returns how many connections were lost. If this has changed since a request, an answer may be
 * missing: Zenoh ends a request to a lost peer as if the peer had answered. */
uint64_t tendon_zenoh_losses(const tendon_zenoh_session* session);

int32_t tendon_zenoh_token(const tendon_zenoh_session* session, tendon_zenoh_text key,
                           tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
/* Reports tokens that match. If a connection is lost, it also reports that tokens of this session
 * ended and returned. */
int32_t tendon_zenoh_watch(const tendon_zenoh_session* session, tendon_zenoh_text pattern,
                           tendon_zenoh_context context, tendon_zenoh_on_token on_token,
                           tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
int32_t tendon_zenoh_get(const tendon_zenoh_session* session, tendon_zenoh_text pattern,
                         uint64_t timeout_ms, tendon_zenoh_context context,
                         tendon_zenoh_on_key on_key, tendon_zenoh_on_end on_end,
                         tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);

/* `encoding` as Zenoh writes it; empty: "zenoh/bytes". */
int32_t tendon_zenoh_put(const tendon_zenoh_session* session, tendon_zenoh_text key,
                         tendon_zenoh_text encoding, tendon_zenoh_lent payload,
                         tendon_zenoh_lent attachment, tendon_zenoh_failure* failure);
/* Announces that the key no longer has a value. */
int32_t tendon_zenoh_delete(const tendon_zenoh_session* session, tendon_zenoh_text key,
                            tendon_zenoh_lent attachment, tendon_zenoh_failure* failure);
/* Puts behind all other traffic, and waits for room in Zenoh's queue instead of dropping. If there
 * is none for seconds, Zenoh closes the connection. Messages of one key and session keep their
 * order. */
int32_t tendon_zenoh_put_patiently(const tendon_zenoh_session* session, tendon_zenoh_text key,
                                   tendon_zenoh_lent payload, tendon_zenoh_failure* failure);
/* Declares a publisher for many puts on one key. `on_matching` reports each change, beginning with
 * "nobody". Subscribers of this session match and receive its puts only with `own_too`. */
int32_t tendon_zenoh_publisher(const tendon_zenoh_session* session, tendon_zenoh_text key,
                               int32_t own_too, tendon_zenoh_context context, tendon_zenoh_on_matching on_matching,
                               tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
/* Returns what on_matching reports or is about to report; 0: there is no subscriber. */
int32_t tendon_zenoh_publisher_matches(const tendon_zenoh_declared* publisher);
/* `encoding` as Zenoh writes it: "application/octet-stream;safetensors". */
int32_t tendon_zenoh_publisher_put(const tendon_zenoh_declared* publisher,
                                   tendon_zenoh_text encoding, tendon_zenoh_lent payload,
                                   tendon_zenoh_lent attachment, tendon_zenoh_failure* failure);
/* Counts the puts and deletes of this process that Zenoh took. */
uint64_t tendon_zenoh_puts(void);
/* Reports puts and deletes. */
int32_t tendon_zenoh_subscribe(const tendon_zenoh_session* session, tendon_zenoh_text pattern,
                               tendon_zenoh_context context, tendon_zenoh_on_message on_message,
                               tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);

int32_t tendon_zenoh_query(const tendon_zenoh_session* session, tendon_zenoh_text key,
                           tendon_zenoh_lent payload, tendon_zenoh_lent attachment,
                           uint64_t timeout_ms, tendon_zenoh_context context,
                           tendon_zenoh_on_message on_answer, tendon_zenoh_on_end on_end,
                           tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
int32_t tendon_zenoh_answer(const tendon_zenoh_session* session, tendon_zenoh_text key,
                            tendon_zenoh_context context, tendon_zenoh_on_question on_question,
                            tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
int32_t tendon_zenoh_reply(const tendon_zenoh_question* question, tendon_zenoh_text key,
                           tendon_zenoh_lent payload, tendon_zenoh_lent attachment,
                           tendon_zenoh_failure* failure);
/* Releases the question: no further answer follows. */
void tendon_zenoh_question_drop(tendon_zenoh_question* question);

/* Withdraws a declaration or a request. A callback may still run when it returns. */
void tendon_zenoh_undeclare(tendon_zenoh_declared* declared);
void tendon_zenoh_held_drop(tendon_zenoh_held* held);

#ifdef __cplusplus
}
#endif

#endif
