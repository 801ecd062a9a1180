/* SPDX-License-Identifier: Apache-2.0
 *
 * What Tendon uses of Zenoh (rust/tendon-zenoh), and the only way to it.
 *
 * Functions return TENDON_ZENOH_OK, or another number and why in `failure`, which may be null. None waits for a
 * peer, except tendon_zenoh_open() and tendon_zenoh_close(). None lets a panic out.
 *
 * Callbacks come from threads of Zenoh, several at once, and from the thread that calls one of
 * these functions; Zenoh may hold locks meanwhile: a callback calls nothing of this header except
 * tendon_zenoh_held_drop(). A context is dropped exactly once, after its last callback, and also
 * where a function fails. Texts are not terminated, and live until the call or callback returns.
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
/* What was declared or asked. */
typedef struct tendon_zenoh_declared tendon_zenoh_declared;
typedef struct tendon_zenoh_question tendon_zenoh_question;
/* What keeps received memory. */
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

/* The caller's memory, which nobody writes to until `release` is called: exactly once, by any
 * thread, also where the function fails. */
typedef struct {
  const uint8_t* data;
  size_t size;
  void* owner;
  void (*release)(void* owner);
} tendon_zenoh_lent;

/* Memory of Zenoh, until tendon_zenoh_held_drop(held); `held` is null where there are no bytes. It
 * is what the network brought, or what a put in this process lent; a copy only where it came in
 * several pieces. */
typedef struct {
  const uint8_t* data;
  size_t size;
  tendon_zenoh_held* held;
} tendon_zenoh_received;

/* An entry of the configuration, as connect/endpoints, and its value in JSON5. */
typedef struct {
  tendon_zenoh_text key;
  tendon_zenoh_text value;
} tendon_zenoh_change;

typedef void (*tendon_zenoh_on_state)(void* context, int32_t is_up);
typedef void (*tendon_zenoh_on_token)(void* context, int32_t came, tendon_zenoh_text key);
/* Whether anybody takes what the publisher puts, as far as Zenoh knows. */
typedef void (*tendon_zenoh_on_matching)(void* context, int32_t somebody);
typedef void (*tendon_zenoh_on_key)(void* context, tendon_zenoh_text key);
/* The last call of a request, also where it was given up or never made. `failed`: somebody asked
 * did not answer in time, or answered with an error. */
typedef void (*tendon_zenoh_on_end)(void* context, int32_t failed);
/* The callee drops what is held of both parts. `deleted`: a delete, which has no payload and the
 * encoding that a put without one has. `encoding` as Zenoh writes it: "application/json". */
typedef void (*tendon_zenoh_on_message)(void* context, int32_t deleted, tendon_zenoh_text key,
                                        tendon_zenoh_text encoding, tendon_zenoh_received payload,
                                        tendon_zenoh_received attachment);
/* The callee drops what is held here, too; the question is the callee's, and the key lives as long as it. */
typedef void (*tendon_zenoh_on_question)(void* context, tendon_zenoh_question* question,
                                         tendon_zenoh_text key, tendon_zenoh_received payload,
                                         tendon_zenoh_received attachment);

/* `config` is a whole configuration in JSON5; then come the changes, one after the other. Tells
 * whether anybody is connected, beginning with "no". */
int32_t tendon_zenoh_open(tendon_zenoh_text config, const tendon_zenoh_change* changes,
                          size_t change_count, tendon_zenoh_context context,
                          tendon_zenoh_on_state on_state, tendon_zenoh_session** opened,
                          tendon_zenoh_failure* failure);
/* Withdraws all that was declared. Not OK where that takes longer; it goes on then. */
int32_t tendon_zenoh_close(tendon_zenoh_session* session, uint64_t timeout_ms);
/* How many connections were lost. An answer may be missing where this changed since the question:
 * Zenoh ends what was asked of a peer that is gone as if it had answered. */
uint64_t tendon_zenoh_losses(const tendon_zenoh_session* session);

int32_t tendon_zenoh_token(const tendon_zenoh_session* session, tendon_zenoh_text key,
                           tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
/* Tells of a token of this session that it went, and comes again, when a connection is lost. */
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
/* Says that the key has no value any more. */
int32_t tendon_zenoh_delete(const tendon_zenoh_session* session, tendon_zenoh_text key,
                            tendon_zenoh_lent attachment, tendon_zenoh_failure* failure);
/* Waits for room in Zenoh's queue instead of dropping, behind all other traffic. Where there is none
 * for seconds, Zenoh closes the connection. Messages of one key and session keep their order. */
int32_t tendon_zenoh_put_patiently(const tendon_zenoh_session* session, tendon_zenoh_text key,
                                   tendon_zenoh_lent payload, tendon_zenoh_failure* failure);
/* A publisher for many puts on one key. Tells of each change, beginning with "nobody". What it puts
 * comes to subscribers of this session, and matches them, only with `own_too`. */
int32_t tendon_zenoh_publisher(const tendon_zenoh_session* session, tendon_zenoh_text key,
                               int32_t own_too, tendon_zenoh_context context, tendon_zenoh_on_matching on_matching,
                               tendon_zenoh_declared** declared, tendon_zenoh_failure* failure);
/* What on_matching says or is about to say; 0: nobody takes it. */
int32_t tendon_zenoh_publisher_matches(const tendon_zenoh_declared* publisher);
/* `encoding` as Zenoh writes it: "application/octet-stream;safetensors". */
int32_t tendon_zenoh_publisher_put(const tendon_zenoh_declared* publisher,
                                   tendon_zenoh_text encoding, tendon_zenoh_lent payload,
                                   tendon_zenoh_lent attachment, tendon_zenoh_failure* failure);
/* Puts and deletes of this process that Zenoh took. */
uint64_t tendon_zenoh_puts(void);
/* Tells of puts and deletes. */
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
/* There is no further answer. */
void tendon_zenoh_question_drop(tendon_zenoh_question* question);

/* Withdraws or gives up. A callback may still be running when it returns. */
void tendon_zenoh_undeclare(tendon_zenoh_declared* declared);
void tendon_zenoh_held_drop(tendon_zenoh_held* held);

#ifdef __cplusplus
}
#endif

#endif
