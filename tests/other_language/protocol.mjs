// The derivations of docs/protocol.md, from the page alone: what a silo with pairwise masks needs.
// It knows no session and reads no file. KEM, AEAD, curves and hashes come from libraries.

import * as crypto from "node:crypto";
import { ml_kem768 } from "@noble/post-quantum/ml-kem.js";

export const VERSION = 4;
export const ALL = 0xffffffff;
export const HEADER = 74, SIGNATURE = 64;
export const TAG = {
  COMMIT: 1, REVEAL: 2, CONTRIBUTION: 3, CONFIRM: 4, KEY_CHECK: 5, MODEL: 6, MASKED: 7,
  OPEN: 20, READY: 21, REFUSAL: 22, RESULT: 23, CLOSE: 24, CLOSED: 25, ROLL: 31,
};

export const text = (words) => Buffer.from(words, "ascii");
export const join = (...parts) => Buffer.concat(parts);
export const u32 = (value) => { const b = Buffer.alloc(4); b.writeUInt32LE(value); return b; };
export const u64 = (value) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(value)); return b; };
export const sha = (...parts) => crypto.createHash("sha256").update(join(...parts)).digest();
const hmac = (key, ...parts) => crypto.createHmac("sha256", key).update(join(...parts)).digest();
// HKDF-Expand of at most one block.
export const expand = (key, info, length) => hmac(key, info, Buffer.from([1])).subarray(0, length);
export const same = (a, b) => a.length === b.length && crypto.timingSafeEqual(a, b);

// Keys ---------------------------------------------------------------------------------------

const PRIVATE = { ed25519: "302e020100300506032b657004220420", x25519: "302e020100300506032b656e04220420" };
const PUBLIC = { ed25519: "302a300506032b6570032100", x25519: "302a300506032b656e032100" };

export function privateKey(kind, seed) {
  const key = join(Buffer.from(PRIVATE[kind], "hex"), seed);
  return crypto.createPrivateKey({ key, format: "der", type: "pkcs8" });
}

export function publicKey(kind, bytes) {
  const key = join(Buffer.from(PUBLIC[kind], "hex"), bytes);
  return crypto.createPublicKey({ key, format: "der", type: "spki" });
}

const raw = (key) => crypto.createPublicKey(key).export({ format: "der", type: "spki" }).subarray(-32);

export function keysOf({ signing, lattice, curve }) {
  return {
    signing: privateKey("ed25519", signing),
    lattice: ml_kem768.keygen(lattice).secretKey,
    curve: privateKey("x25519", curve),
  };
}

export const sign = (keys, content) => crypto.sign(null, content, keys.signing);
export const verifies = (party, content, signature) =>
  crypto.verify(null, content, publicKey("ed25519", party.verifying), signature);

// A party's fields are Buffers and texts; what it does not have is empty.
export function rosterDigest(parties) {
  const networked = parties.some((one) => one.transport.length || one.relay || one.relayKey.length);
  const fields = parties.flatMap((one) => [
    Buffer.from(one.name), Buffer.from(one.role), one.verifying, one.sealing,
    ...(networked ? [one.transport, Buffer.from(one.relay), one.relayKey] : []),
  ]);
  return sha(text(networked ? "hubbub roster v2" : "hubbub roster v1"),
    ...fields.flatMap((part) => [u32(part.length), part]));
}

// Sealing: HPKE (RFC 9180) in base mode, X-Wing, HKDF-SHA256, AES-128-GCM ---------------------

const SUITE = join(text("HPKE"), Buffer.from("647a00010001", "hex"));
const XWING = Buffer.from("5c2e2f2f5e5c", "hex");
const extract = (salt, name, key) => hmac(salt, text("HPKE-v1"), SUITE, text(name), key);

function derive(key, name, info, size) {
  const length = Buffer.from([size >> 8, size & 255]);
  return expand(key, join(length, text("HPKE-v1"), SUITE, text(name), info), size);
}

function cipherOf(lattice, shared, point, theirs, context) {
  const secret = crypto.createHash("sha3-256")
    .update(join(Buffer.from(lattice), shared, point, theirs, XWING)).digest();
  const none = Buffer.alloc(0);
  const schedule = join(Buffer.from([0]), extract(none, "psk_id_hash", none), extract(none, "info_hash", context));
  const key = extract(secret, "secret", none);
  return [derive(key, "key", schedule, 16), derive(key, "base_nonce", schedule, 12)];
}

export function seal(sealing, plaintext, context) {
  const theirs = sealing.subarray(1184);
  const { cipherText, sharedSecret } = ml_kem768.encapsulate(sealing.subarray(0, 1184));
  const fresh = crypto.generateKeyPairSync("x25519");
  const shared = crypto.diffieHellman({ privateKey: fresh.privateKey, publicKey: publicKey("x25519", theirs) });
  const point = raw(fresh.privateKey);
  const cipher = crypto.createCipheriv("aes-128-gcm", ...cipherOf(sharedSecret, shared, point, theirs, context));
  return join(Buffer.from(cipherText), point, cipher.update(plaintext), cipher.final(), cipher.getAuthTag());
}

export function open(keys, sealed, context) {
  const [hidden, point, body] = [sealed.subarray(0, 1088), sealed.subarray(1088, 1120), sealed.subarray(1120)];
  const shared = crypto.diffieHellman({ privateKey: keys.curve, publicKey: publicKey("x25519", point) });
  const lattice = ml_kem768.decapsulate(hidden, keys.lattice);
  const decipher = crypto.createDecipheriv("aes-128-gcm", ...cipherOf(lattice, shared, point, raw(keys.curve), context));
  decipher.setAuthTag(body.subarray(-16));
  return join(decipher.update(body.subarray(0, -16)), decipher.final());
}

export const sealingContext = (study, session, sender, receiver) =>
  join(text("hubbub contribution v1"), study, session, u32(sender), u32(receiver));

// Set-up -------------------------------------------------------------------------------------

export const commitment = (session, index, share) => sha(text("hubbub commit v1"), session, u32(index), share);

// Commitments and shares of the seed are Maps from a silo's index, rising.
const told = (commits, shares) => [...commits].flatMap(([silo, one]) => [u32(silo), one, shares.get(silo)]);

export function jointSeed(session, roll, commits, shares) {
  return sha(text("hubbub joint seed v2"), session, roll, ...told(commits, shares));
}

// From receiver to frame.
export function sentDigest(frames) {
  const order = [...frames.keys()].sort((a, b) => a - b);
  return sha(text("hubbub sent v1"), ...order.flatMap((to) => [u32(to), sha(frames.get(to))]));
}

export function transcriptOf({ study, session, roster, context, commits, shares, digests }) {
  return sha(text("hubbub transcript v1"), study, session, roster, context,
    ...told(commits, shares), digests);
}

export function pairSecret(study, session, low, high, fromLow, fromHigh) {
  const extracted = hmac(join(study, session), fromLow, fromHigh);
  return expand(extracted, join(text("hubbub pair v1"), u32(low), u32(high)), 32);
}

export const keyCheck = (secret, transcript, sender) =>
  expand(secret, join(text("hubbub check v1"), transcript, u32(sender)), 32);

export const contextOf = (payload, roll) => sha(text("hubbub opening v2"), sha(payload), roll);

// Masks --------------------------------------------------------------------------------------

export const WORDS = { 16: Uint16Array, 32: Uint32Array, 64: BigUint64Array };

export function keystream(key, size) {
  const cipher = crypto.createCipheriv("aes-128-ctr", key, Buffer.alloc(16));
  return cipher.update(Buffer.alloc(size));
}

export function words(bytes, bits) {
  const whole = new Uint8Array(bytes); // a copy, which begins at 0: this machine is little-endian
  return new WORDS[bits](whole.buffer);
}

export function maskKey(secret, transcript, round, attempt, model) {
  return expand(secret, join(text("hubbub mask v2"), transcript, u32(round), u32(attempt), model), 16);
}

// Adds the masks of pairs to residues, in place; secrets is a Map from a neighbour's index.
export function addMasks(residues, own, secrets, transcript, round, attempt, model, bits) {
  for (const [other, secret] of secrets) {
    const mask = words(keystream(maskKey(secret, transcript, round, attempt, model), residues.byteLength), bits);
    for (let j = 0; j < residues.length; j++) {
      residues[j] = other > own ? residues[j] + mask[j] : residues[j] - mask[j];
    }
  }
}

// Silo 1 is the highest bit of the first byte.
export function membersOf(bitmap, silos) {
  return Array.from({ length: silos }, (_, k) => k + 1)
    .filter((silo) => (bitmap[(silo - 1) >> 3] >> (7 - ((silo - 1) & 7))) & 1);
}

// Frames -------------------------------------------------------------------------------------

export function signed(header, payload) {
  const end = Math.max(payload.length - 32, 0);
  const hashed = header[1] === TAG.MASKED ? sha(sha(payload.subarray(0, end)), payload.subarray(end)) : sha(payload);
  return join(text("hubbub frame v1"), header, hashed);
}

export function frame(keys, { tag, study, session, round = 0, attempt = 0, sender, receiver }, payload) {
  const header = join(Buffer.from([VERSION, tag]), study, session,
    u32(round), u32(attempt), u32(sender), u32(receiver), u64(payload.length));
  return join(header, payload, sign(keys, signed(header, payload)));
}

export function parse(bytes, parties) {
  if (bytes.length < HEADER + SIGNATURE || bytes[0] !== VERSION) throw new Error("no frame of this version");
  const header = bytes.subarray(0, HEADER), payload = bytes.subarray(HEADER, -SIGNATURE);
  const [round, attempt, sender, receiver] = [50, 54, 58, 62].map((at) => header.readUInt32LE(at));
  if (header.readBigUInt64LE(66) !== BigInt(payload.length)) throw new Error("another length");
  const content = signed(header, payload);
  if (sender >= parties.length || !verifies(parties[sender], content, bytes.subarray(-SIGNATURE))) {
    throw new Error("not signed by a party");
  }
  return {
    tag: header[1], study: header.subarray(2, 34), session: header.subarray(34, 50),
    round, attempt, sender, receiver, payload, digest: sha(content),
  };
}
