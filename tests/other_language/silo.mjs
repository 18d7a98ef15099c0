// A silo of docs/protocol.md: logistic regression, pairwise masks, Poisson batches, independent noise.
//
// A reference to read and to test with, not to keep patients' records in: noise is rounded double
// precision, and times tell of records. It is asked on stdin and answers on stdout, an envelope
// after u32(length), and reads one JSON file: the study, its keys, its roster, the numbers of the
// rounds that follow from the study, its records. Before it answers a MODEL there is a line in its
// ledger, on disk.

import * as crypto from "node:crypto";
import * as fs from "node:fs";
import * as p from "./protocol.mjs";

const { TAG, join, u32, u64, sha, text } = p;
const CALL = { PING: 0, OPEN: 1, COMMIT: 2, REVEAL: 3, CONTRIBUTE: 4, CONFIRM: 5, FINISH: 6, MODEL: 7, CLOSE: 10 };
const NOTHING = Buffer.alloc(0), NO_SESSION = Buffer.alloc(16);

class Refused extends Error {
  constructor(why, said) { super(said); this.why = why; }
}

function expect(holds, said) {
  if (!holds) throw new Refused("protocol", `expected ${said}`);
}

// The ledger: a chain of lines, each with the hash of all before it -----------------------------

class Ledger {
  constructor(path) {
    this.path = path;
    this.rows = fs.existsSync(path) ? fs.readFileSync(path, "utf8").trimEnd().split("\n").map(JSON.parse) : [];
  }

  get head() { return this.rows.length ? this.rows.at(-1).head : sha(text("an empty ledger")).toString("hex"); }

  append(row) {
    const line = { ...row, head: sha(Buffer.from(this.head + JSON.stringify(row))).toString("hex") };
    const file = fs.openSync(this.path, "a");
    fs.writeSync(file, JSON.stringify(line) + "\n");
    fs.fsyncSync(file);
    fs.closeSync(file);
    this.rows.push(line);
  }

  paid(study) { return this.rows.filter((row) => row.study === study && row.kind === "charge"); }
  closed(study) { return this.rows.some((row) => row.study === study && row.kind === "closing"); }
}

// Randomness: what an attempt draws follows from a state and its MODEL; then the state is mixed ----

class Draws {
  constructor() { this.state = crypto.randomBytes(32); }

  for(model) {
    const key = p.expand(this.state, join(text("draws"), model), 16);
    this.cipher = crypto.createCipheriv("aes-128-ctr", key, Buffer.alloc(16));
  }

  mix() { this.state = sha(this.state, crypto.randomBytes(32)); }

  // In (0, 1), of 53 bits.
  uniform() {
    const bits = this.cipher.update(Buffer.alloc(8)).readBigUInt64LE() >> 11n;
    return (Number(bits) + 0.5) / 2 ** 53;
  }

  normal() { return Math.sqrt(-2 * Math.log(this.uniform())) * Math.cos(2 * Math.PI * this.uniform()); }
}

// The sum of a batch's clipped gradients of a logistic model: weights, then the bias --------------

function clippedSum(records, model, rate, clip, draws) {
  const sum = new Float64Array(model.length), last = model.length - 1;
  for (const { x, y } of records) {
    if (draws.uniform() >= rate) continue;
    const z = x.reduce((total, value, k) => total + value * model[k], model[last]);
    const slope = 1 / (1 + Math.exp(-z)) - y;
    const norm = Math.abs(slope) * Math.sqrt(x.reduce((total, value) => total + value * value, 1));
    const scale = slope * Math.min(1, norm > 0 ? clip / norm : 1);
    x.forEach((value, k) => { sum[k] += scale * value; });
    sum[last] += scale;
  }
  return sum;
}

class Silo {
  constructor(config) {
    const hex = (value) => Buffer.from(value, "hex"), base64 = (value) => Buffer.from(value ?? "", "base64");
    this.study = hex(config.study);
    this.index = config.index;
    this.terms = config.terms;
    this.clip = config.clip;
    this.records = config.records;
    this.version = config.version;
    this.parties = config.roster.map((one) => ({
      name: one.name, role: one.role, verifying: base64(one.verifying), sealing: base64(one.sealing),
      transport: base64(one.transport), relay: one.relay ?? "", relayKey: base64(one.relay_key),
    }));
    const { signing, lattice, curve } = config.keys;
    this.keys = p.keysOf({ signing: base64(signing), lattice: base64(lattice), curve: base64(curve) });
    this.ledger = new Ledger(config.ledger);
    this.draws = new Draws();
    this.opened = new Set();
    this.session = null;
    this.finished = null; // the newest session that was set up, in which the end may be told
  }

  answer(request) {
    try {
      expect(request.subarray(0, 5).equals(Buffer.from("hub?\x04", "latin1")), "an envelope of this version");
      const call = request[5], session = request.subarray(6, 22), parts = [];
      for (let at = 22; at < request.length;) {
        const size = Number(request.readBigUInt64LE(at));
        expect(at + 8 + size <= request.length, "whole parts");
        parts.push(request.subarray(at + 8, at + 8 + size));
        at += 8 + size;
      }
      return envelope(this.answered(call, session, parts));
    } catch (error) {
      process.stderr.write(`${error.stack}\n`);
      const said = { why: error.why ?? "failed", culprit: error.why === "protocol" ? "relay" : "",
        to: sha(request).toString("hex") };
      return envelope([this.frame(TAG.REFUSAL, Buffer.from(JSON.stringify(said)), { session: NO_SESSION })]);
    }
  }

  answered(call, session, parts) {
    if (call === CALL.OPEN) return this.open(parts);
    const known = this.session && this.session.id.equals(session);
    if (call === CALL.PING) return known && this.session.secrets ? [this.frame(TAG.READY, NOTHING, { session })] : [];
    if (call === CALL.CLOSE && this.finished && this.finished.id.equals(session)) this.session = this.finished;
    else if (!known) throw new Refused("no-session", "expected a session that was opened here");
    const step = { [CALL.COMMIT]: "commit", [CALL.REVEAL]: "reveal", [CALL.CONTRIBUTE]: "contribute",
      [CALL.CONFIRM]: "confirm", [CALL.FINISH]: "finish", [CALL.MODEL]: "model", [CALL.CLOSE]: "close" }[call];
    expect(step, "a call that this silo knows");
    return this[step](parts);
  }

  frame(tag, payload, { receiver = 0, round = 0, attempt = 0, session = this.session.id } = {}) {
    return p.frame(this.keys, { tag, study: this.study, session, round, attempt, sender: this.index, receiver }, payload);
  }

  // A frame of the session with this tag, for me or everybody.
  read(bytes, tag) {
    let found;
    try { found = p.parse(bytes, this.parties); } catch (error) { expect(false, `a signed frame: ${error.message}`); }
    expect(found.study.equals(this.study) && found.session.equals(this.session.id), "this study and session");
    expect(found.tag === tag, `the tag ${tag}`);
    expect(found.receiver === this.index || found.receiver === p.ALL, "me or everybody as the receiver");
    return found;
  }

  // One frame from each of these senders, with so many bytes, by sender.
  readAll(parts, tag, senders, size) {
    const found = new Map();
    for (const part of parts) {
      const one = this.read(part, tag);
      expect(one.round === 0 && one.attempt === 0 && senders.includes(one.sender), "a sender of this phase");
      expect(!found.has(one.sender) && one.payload.length === size, "one frame of its length from each");
      found.set(one.sender, one.payload);
    }
    expect(found.size === senders.length, "a frame from everybody");
    return found;
  }

  open([part]) {
    const offer = p.parse(part, this.parties);
    expect(offer.sender === 0 && offer.tag === TAG.OPEN && offer.receiver === p.ALL, "an OPEN of the aggregator");
    if (!offer.study.equals(this.study)) throw new Refused("not-approved", "expected the study that is approved");
    const name = offer.session.toString("hex");
    expect(!this.opened.has(name), "a new session");
    this.opened.add(name);
    const { purpose, terms, standardisation } = JSON.parse(offer.payload);
    const mine = purpose === "training" && standardisation === null && alike(terms, this.terms);
    if (!mine) throw new Refused("plan", "expected the numbers that follow from the study");
    this.session = { id: Buffer.from(offer.session), offer: Buffer.from(offer.payload), time: [0, 0], attempts: 0 };
    const paid = this.ledger.paid(this.study.toString("hex")).length;
    const said = { version: this.version, attempts: { training: paid } };
    return [this.frame(TAG.READY, Buffer.from(JSON.stringify(said)))];
  }

  // The ROLL leads the COMMIT: whose frames are expected from here on.
  commit([part]) {
    const s = this.session;
    expect(!s.share && part, "one set-up of a session, begun with its ROLL");
    const roll = this.read(part, TAG.ROLL);
    const placed = roll.sender === 0 && roll.receiver === p.ALL && roll.round === 0 && roll.attempt === 0;
    expect(placed && roll.payload.length === Math.ceil(this.terms.silos / 8), "a ROLL of the aggregator");
    s.roll = Buffer.from(roll.digest);
    s.silos = p.membersOf(roll.payload, this.terms.silos);
    s.others = s.silos.filter((one) => one !== this.index);
    expect(s.silos.length >= this.terms.quorum && s.silos.includes(this.index), "a session of a quorum with me in it");
    s.share = crypto.randomBytes(32);
    return [this.frame(TAG.COMMIT, p.commitment(s.id, this.index, s.share), { receiver: p.ALL })];
  }

  reveal(parts) {
    const s = this.session;
    s.commits = this.readAll(parts, TAG.COMMIT, s.silos, 32);
    expect(s.commits.get(this.index).equals(p.commitment(s.id, this.index, s.share)), "my own COMMIT unchanged");
    return [this.frame(TAG.REVEAL, s.share, { receiver: p.ALL })];
  }

  contribute(parts) {
    const s = this.session;
    s.shares = this.readAll(parts, TAG.REVEAL, s.silos, 32);
    for (const [silo, share] of s.shares) {
      expect(s.commits.get(silo).equals(p.commitment(s.id, silo, share)), "shares that open their commitments");
    }
    expect(this.terms.silos <= 101, "few silos: all are neighbours"); // else the graph of section 5
    s.mine = new Map(s.others.map((other) => [other, crypto.randomBytes(32)]));
    s.sent = new Map(s.others.map((other) => {
      const context = p.sealingContext(this.study, s.id, this.index, other);
      const sealed = p.seal(this.parties[other].sealing, s.mine.get(other), context);
      return [other, this.frame(TAG.CONTRIBUTION, sealed, { receiver: other })];
    }));
    return [...s.sent.values()];
  }

  confirm([digests, ...parts]) {
    const s = this.session;
    expect(digests.length === 32 * this.parties.length, "a digest for each party");
    const own = digests.subarray(32 * this.index, 32 * this.index + 32);
    expect(own.equals(p.sentDigest(s.sent)), "my own digest unchanged");
    const silent = this.parties.map((_, index) => index).filter((one) => !s.silos.includes(one));
    const zeros = silent.every((one) => digests.subarray(32 * one, 32 * one + 32).equals(Buffer.alloc(32)));
    expect(zeros, "no digest of who does not take part");
    const sealed = this.readAll(parts, TAG.CONTRIBUTION, s.others, 1168);
    s.secrets = new Map(s.others.map((other) => {
      const theirs = p.open(this.keys, sealed.get(other), p.sealingContext(this.study, s.id, other, this.index));
      const [low, high] = [Math.min(other, this.index), Math.max(other, this.index)];
      const [a, b] = low === this.index ? [s.mine.get(other), theirs] : [theirs, s.mine.get(other)];
      return [other, p.pairSecret(this.study, s.id, low, high, a, b)];
    }));
    const ordered = (map) => new Map(s.silos.map((silo) => [silo, map.get(silo)]));
    s.transcript = p.transcriptOf({
      study: this.study, session: s.id, roster: p.rosterDigest(this.parties), context: p.contextOf(s.offer, s.roll),
      commits: ordered(s.commits), shares: ordered(s.shares), digests,
    });
    const checks = s.others.map((other) =>
      this.frame(TAG.KEY_CHECK, p.keyCheck(s.secrets.get(other), s.transcript, this.index), { receiver: other }));
    return [this.frame(TAG.CONFIRM, s.transcript, { receiver: p.ALL }), ...checks];
  }

  finish(parts) {
    const s = this.session, tagged = (tag) => parts.filter((part) => part[1] === tag);
    const confirms = this.readAll(tagged(TAG.CONFIRM), TAG.CONFIRM, s.others, 32);
    for (const one of confirms.values()) expect(one.equals(s.transcript), "everybody to have seen the same");
    const checks = this.readAll(tagged(TAG.KEY_CHECK), TAG.KEY_CHECK, s.others, 32);
    for (const [other, check] of checks) {
      expect(p.same(check, p.keyCheck(s.secrets.get(other), s.transcript, other)), "a right KEY_CHECK");
    }
    s.ready = true;
    this.finished = s;
    return [];
  }

  model([part]) {
    const s = this.session, t = this.terms, one = this.read(part, TAG.MODEL);
    const bitmap = Math.ceil(t.silos / 8);
    expect(s.ready && one.sender === 0 && one.receiver === p.ALL, "the aggregator's MODEL in a session");
    expect(one.payload.length === bitmap + 4 * t.parameters, "a model of its length");
    const active = p.membersOf(one.payload, t.silos);
    expect(active.length >= t.quorum && active.includes(this.index), "a quorum with me in it");
    expect(active.every((one) => s.silos.includes(one)), "silos of this session alone");
    const [round, attempt] = s.time;
    expect(one.round >= 1 && one.round <= t.steps, "a round of the study");
    expect(one.round > round || (one.round === round && one.attempt > attempt), "a time after my last");
    expect(++s.attempts <= t.steps, "no more attempts than steps");
    s.time = [one.round, one.attempt];
    const study = this.study.toString("hex");
    if (this.ledger.closed(study)) throw new Refused("no-session", "expected a study that goes on");
    this.ledger.append({ kind: "charge", study, session: s.id.toString("hex"), round: one.round, attempt: one.attempt });
    const floats = Float64Array.from({ length: t.parameters }, (_, k) => one.payload.readFloatLE(bitmap + 4 * k));
    expect(floats.every(Number.isFinite), "finite numbers");
    const shares = t.announced_shares ?? 0, left = shares - t.silos + active.length;
    const sigma = t.sigma_grid * (shares ? Math.sqrt(shares / left) : 1);
    this.draws.for(one.digest);
    const sum = clippedSum(this.records, floats, t.sample_rate, this.clip, this.draws);
    const word = t.word_bits === 64 ? BigInt : Number;
    const residues = p.WORDS[t.word_bits].from(sum, (x) => {
      const scaled = x / t.grid_step, whole = Math.floor(scaled);
      return word(whole + Math.round(scaled - whole + sigma * this.draws.normal()));
    });
    this.draws.mix();
    const secrets = new Map([...s.secrets].filter(([other]) => active.includes(other)));
    p.addMasks(residues, this.index, secrets, s.transcript, one.round, one.attempt, one.digest, t.word_bits);
    const payload = join(Buffer.from(residues.buffer), one.digest);
    return [this.frame(TAG.MASKED, payload, { round: one.round, attempt: one.attempt })];
  }

  close([closing, result]) {
    const s = this.session, study = this.study.toString("hex");
    const listed = JSON.parse(this.read(closing, TAG.CLOSE).payload).sessions;
    expect(this.read(result, TAG.RESULT).payload.length === 4 * this.terms.parameters, "a model");
    if (!this.ledger.closed(study)) this.ledger.append({ kind: "closing", study });
    const charged = this.ledger.paid(study), sessions = [...new Set(charged.map((row) => row.session))].sort();
    const part = {
      attempts: charged.length, closed: true, data_set: null,
      ledger: { head: this.ledger.head, rows: this.ledger.rows.length },
      sessions: sessions.filter((one) => listed.includes(one)), silo: this.parties[this.index].name,
      study, unlisted: sessions.filter((one) => !listed.includes(one)),
    }; // keys in the order of the alphabet, as they are signed
    const signature = p.sign(this.keys, join(text("hubbub evidence part v1"), Buffer.from(JSON.stringify(part))));
    return [this.frame(TAG.CLOSED, Buffer.from(JSON.stringify({ ...part, signature: signature.toString("hex") })))];
  }
}

function alike(theirs, mine) {
  if (typeof mine === "number" && typeof theirs === "number") return Math.abs(theirs - mine) <= 1e-9 * Math.abs(mine);
  if (typeof mine !== "object" || mine === null) return theirs === mine;
  const keys = Object.keys(mine);
  return typeof theirs === "object" && theirs !== null && Object.keys(theirs).length === keys.length
    && keys.every((key) => alike(theirs[key], mine[key]));
}

const envelope = (parts) => join(Buffer.from("hub!\x04", "latin1"), ...parts.flatMap((one) => [u64(one.length), one]));

const silo = new Silo(JSON.parse(fs.readFileSync(process.argv[2], "utf8")));
let waiting = NOTHING;
process.stdin.on("data", (more) => {
  waiting = join(waiting, more);
  while (waiting.length >= 4 && waiting.length >= 4 + waiting.readUInt32LE()) {
    const end = 4 + waiting.readUInt32LE(), said = silo.answer(waiting.subarray(4, end));
    process.stdout.write(join(u32(said.length), said));
    waiting = waiting.subarray(end);
  }
});
