/* Secrets of a job: variables of its commands' environment that are stored, queued and logged only
 * sealed.
 *
 * Theory: a client gives {"secrets": {"NAME": "value"}}. Whoever makes the job durable seals it
 * first (the store refuses one that is not): each value in the canonical JSON becomes {"sealed":
 * base64 of nonce and ciphertext}, XChaCha20-Poly1305 over the value with tenant and name as
 * associated data. The worker opens them in memory, for the guest's Run message and nothing else.
 * So a sealed value is of no use to another tenant, under another name, or without the key, which
 * is in neither database. The nonce is a keyed hash of tenant, name and value: the same job seals
 * to the same text, so that an idempotency key still tells the same job from another; it shows that
 * two jobs of one tenant have the same value under the same name, and nothing else. Pure. */
#pragma once
#include "common/base/secret_key.h"
#include "common/model/job.h"

/* Seal what is not sealed yet; the canonical form is made anew. No secrets: nothing happens.
 * -ERR_TOO_LARGE when the canonical form grows over JOB_JSON_MAX. */
MUST_CHECK int secrets_seal(struct job_spec *spec, const uint8_t key[SECRET_KEY_BYTES],
                            const char *tenant, struct err *err);
/* Sealed values become the plain ones in spec->secrets; the canonical form stays sealed.
 * -ERR_INVALID: not sealed with this key for this tenant under this name. No error tells a value.
 */
MUST_CHECK int secrets_open(struct job_spec *spec, const uint8_t key[SECRET_KEY_BYTES],
                            const char *tenant, struct err *err);
