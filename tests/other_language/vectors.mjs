// Reads golden vectors as JSON from stdin, derives everything anew, and prints how much was alike.

import * as p from "./protocol.mjs";
import { readFileSync } from "node:fs";

const { pairwise: v, masks, sealed, keys } = JSON.parse(readFileSync(0));
const hex = (value) => Buffer.from(value, "hex");
const counts = {};
function alike(what, found, stated) {
  if (!Buffer.from(found).equals(hex(stated))) throw new Error(`${what}: ${Buffer.from(found).toString("hex")}, not ${stated}`);
  counts[what] = (counts[what] ?? 0) + 1;
}

const parties = v.roster.map((one) => ({
  name: one.name, role: one.role, verifying: hex(one.verifying), sealing: hex(one.sealing),
  transport: Buffer.alloc(0), relay: "", relayKey: Buffer.alloc(0),
}));
const [study, session] = [hex(v.study), hex(v.session)];
const payload = (frame) => p.parse(hex(frame), parties).payload;
alike("roster digest", p.rosterDigest(parties), v.roster_digest);
const bySilo = (frames) => new Map(frames.map((frame) => [p.parse(hex(frame), parties).sender, payload(frame)]));
const [commits, shares] = [bySilo(v.commits), bySilo(v.reveals)];
commits.forEach((one, silo) => alike("commitment", p.commitment(session, silo, shares.get(silo)), one.toString("hex")));
const roll = p.parse(hex(v.roll), parties).digest;
alike("joint seed", p.jointSeed(session, roll, commits, shares), v.seed);
const contributed = {};
for (const [sender, frames] of Object.entries(v.contributions)) {
  for (const [receiver, frame] of Object.entries(frames)) {
    const own = keys[receiver];
    const opened = p.open(p.keysOf({ signing: hex(own.signing), lattice: hex(own.lattice), curve: hex(own.curve) }),
      payload(frame), p.sealingContext(study, session, Number(sender), Number(receiver)));
    alike("contribution", opened, v.contributed[sender][receiver]);
    contributed[`${sender}-${receiver}`] = opened;
  }
  const sent = new Map(Object.entries(frames).map(([to, frame]) => [Number(to), hex(frame)]));
  alike("sent digest", p.sentDigest(sent), v.digests.slice(64 * Number(sender), 64 * Number(sender) + 64));
}
const transcript = p.transcriptOf({
  study, session, roster: p.rosterDigest(parties), context: Buffer.alloc(0), commits, shares, digests: hex(v.digests),
});
alike("transcript", transcript, v.transcript);
v.confirms.forEach((frame) => alike("confirm", payload(frame), v.transcript));
const secrets = {};
for (const [pair, stated] of Object.entries(v.secrets)) {
  const [low, high] = pair.split("-").map(Number);
  secrets[pair] = p.pairSecret(study, session, low, high, contributed[`${low}-${high}`], contributed[`${high}-${low}`]);
  alike("pair secret", secrets[pair], stated);
}
for (const [sender, frames] of Object.entries(v.checks)) {
  for (const [receiver, frame] of Object.entries(frames)) {
    const pair = [sender, receiver].map(Number).sort((a, b) => a - b).join("-");
    alike("key check", p.keyCheck(secrets[pair], transcript, Number(sender)), payload(frame).toString("hex"));
  }
}
const round = v.round, model = p.parse(hex(round.model), parties);
for (const frame of round.masked) {
  const own = p.parse(hex(frame), parties).sender, bits = round.word_bits;
  const residues = p.WORDS[bits].from(round.values[own]);
  const others = new Map(round.active.filter((one) => one !== own)
    .map((one) => [one, secrets[[own, one].sort((a, b) => a - b).join("-")]]));
  p.addMasks(residues, own, others, transcript, round.round, round.attempt, model.digest, bits);
  const made = p.join(Buffer.from(residues.buffer), model.digest);
  alike("masked", made, payload(frame).toString("hex"));
}
for (const one of masks) {
  const key = p.maskKey(hex(one.secret), hex(one.transcript), one.round, one.attempt, hex(one.model_digest));
  alike("mask key", key, one.key);
  const stream = p.keystream(key, one.length * one.word_bits / 8);
  alike("mask stream", p.sha(stream), one.sha256);
  if (String(p.words(stream, one.word_bits)[0]) !== String(one.first[0])) throw new Error("the first word of a mask");
}
console.log(JSON.stringify(counts));
