// A GPT without any library: weights out of a file, tokens in, and for each of them what
// every head attended to and a guess at the token after it. It knows nothing of pages:
// `watch.js` draws what it finds, and `read.js` runs it in a terminal.

// --8<-- [start:file]
// safetensors: eight bytes say how long the header is, the header says in JSON where
// each tensor begins and ends, and the numbers follow.
export function readSafetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  delete header.__metadata__;
  const tensors = {};
  for (const [name, { dtype, data_offsets }] of Object.entries(header)) {
    if (dtype !== "F16") throw new Error(`${name} is ${dtype}; only F16 is read here`);
    const [start, end] = data_offsets.map((offset) => 8 + length + offset);
    tensors[name] = new Float32Array(new Uint16Array(buffer.slice(start, end))).map(halfToFloat);
  }
  return tensors;
}

// Half precision: one bit of sign, five of exponent, ten of fraction.
function halfToFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  return exponent ? sign * (1 + fraction) * 2 ** (exponent - 15) : sign * fraction * 2 ** -14;
}
// --8<-- [end:file]

// --8<-- [start:parts]
// out = W x + b, a dot product for each row of W. Four rows at once: in a single sum each
// addition would wait for the one before it, and each number of x would be fetched anew.
function linear(weight, bias, x, out) {
  const width = x.length, rows = out.length;
  for (let block = 0; block < rows; block += 4) {
    const row = Math.max(0, Math.min(block, rows - 4)); // the last four may overlap the ones before
    const first = row * width, second = first + width, third = second + width, fourth = third + width;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < width; i++) {
      const value = x[i];
      a += weight[first + i] * value;
      b += weight[second + i] * value;
      c += weight[third + i] * value;
      d += weight[fourth + i] * value;
    }
    out[row] = a;
    out[row + 1] = b;
    out[row + 2] = c;
    out[row + 3] = d;
  }
  if (bias) for (let row = 0; row < rows; row++) out[row] += bias[row];
  return out;
}

// Mean 0 and variance 1, then a scale and a shift for each feature.
function layerNorm(weight, bias, x, out) {
  let mean = 0, variance = 0;
  for (const value of x) mean += value / x.length;
  for (const value of x) variance += (value - mean) ** 2 / x.length;
  const scale = 1 / Math.sqrt(variance + 1e-5);
  for (let i = 0; i < x.length; i++) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  return out;
}

export function softmax(row) {
  let largest = -Infinity, sum = 0;
  for (const value of row) largest = Math.max(largest, value);
  for (let i = 0; i < row.length; i++) sum += row[i] = Math.exp(row[i] - largest);
  for (let i = 0; i < row.length; i++) row[i] /= sum;
  return row;
}

// x times the share of a normal distribution below x. JavaScript has no error function;
// this one is off by at most 1.5e-7 (Abramowitz and Stegun, 1964, formula 7.1.26).
function gelu(x) {
  const z = Math.abs(x) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * z);
  const tail = t * Math.exp(-z * z) *
    (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return x * (x < 0 ? tail / 2 : 1 - tail / 2);
}
// --8<-- [end:parts]

// What the model may be made of: anything else would run, and give other numbers.
const WANTED = { positions: "learned", norm: "layer", activation: "gelu", bias: true, tie_head: true, num_experts: 0, qk_norm: false, smear: false, windows: null, kept_heads: null };

export class GPT {
  constructor(config, tensors) {
    for (const [name, value] of Object.entries(WANTED)) {
      if ((config[name] ?? null) !== value) throw new Error(`${name}=${config[name]} is not read here, only ${value}`);
    }
    const { attention = "softmax", d_model, num_heads, num_layers, max_seq_len, vocab_size } = config;
    if (attention !== "softmax") throw new Error(`attention=${attention} is not read here, only softmax`);
    if ((config.num_kv_heads ?? num_heads) !== num_heads) throw new Error(`num_kv_heads=${config.num_kv_heads} is not num_heads=${num_heads}`);
    const floats = (size) => new Float32Array(size);
    const layers = (make) => Array.from({ length: num_layers }, make);
    this.config = config;
    this.tensors = tensors;
    this.tokens = []; // all that was read; the cache holds as many rows
    // For each layer a row for each position; the outputs are what the heads average.
    for (const name of ["queries", "keys", "values", "outputs"]) this[name] = layers(() => floats(max_seq_len * d_model));
    // For each layer and head a square, a row for each query: the maps that are drawn.
    this.weights = layers(() => Array.from({ length: num_heads }, () => floats(max_seq_len ** 2)));
    this.logits = floats(max_seq_len * vocab_size);
    this.instead = layers(() => Array(num_heads).fill(null));
    const d_ff = config.d_ff ?? 4 * d_model;
    this.room = { x: floats(d_model), normed: floats(d_model), heads: floats(d_model), added: floats(d_model), wide: floats(d_ff) };
  }

  // Read a sequence. What it begins with and was read before is in the cache already;
  // how much that is, is returned.
  read(tokens) {
    const { max_seq_len } = this.config;
    if (tokens.length > max_seq_len) throw new Error(`${tokens.length} tokens are more than max_seq_len=${max_seq_len}`);
    let same = 0;
    while (same < this.tokens.length && this.tokens[same] === tokens[same]) same++;
    this.tokens.length = same;
    for (const token of tokens.slice(same)) this.step(token);
    return same;
  }

  // What a head writes can be replaced: `rows`, told a position, answers with the numbers
  // to write there, or with nothing where the head's own stay. All that was read has to be
  // read again, for later layers have kept keys and values that the head had a part in.
  replace(layer, head, rows) {
    this.instead[layer][head] = rows;
    this.tokens.length = 0;
  }

  mute(layer, head, muted) {
    const zeros = new Float32Array(this.config.d_model / this.config.num_heads);
    this.replace(layer, head, muted ? () => zeros : null);
  }

  // --8<-- [start:step]
  // Read one more token: a column of numbers goes up through the layers.
  step(token) {
    const { tensors, room: { x, normed, added, wide } } = this;
    const { d_model, num_layers, vocab_size } = this.config;
    const t = this.tokens.length;
    for (let i = 0; i < d_model; i++) {
      x[i] = tensors["token_embedding.weight"][token * d_model + i];
      x[i] += tensors["position_embedding.weight"][t * d_model + i];
    }
    for (let layer = 0; layer < num_layers; layer++) {
      const at = (name) => tensors[`blocks.${layer}.${name}`];
      const apply = (f, name, from, to) => f(at(`${name}.weight`), at(`${name}.bias`), from, to);
      apply(layerNorm, "attention_norm", x, normed);
      this.attend(layer, t, apply);
      for (let i = 0; i < d_model; i++) x[i] += added[i];
      apply(layerNorm, "feed_forward_norm", x, normed);
      apply(linear, "feed_forward.up", normed, wide);
      for (let i = 0; i < wide.length; i++) wide[i] = gelu(wide[i]);
      apply(linear, "feed_forward.down", wide, added);
      for (let i = 0; i < d_model; i++) x[i] += added[i];
    }
    layerNorm(tensors["norm.weight"], tensors["norm.bias"], x, normed);
    const logits = this.logits.subarray(t * vocab_size, (t + 1) * vocab_size);
    linear(tensors["token_embedding.weight"], null, normed, logits);
    this.tokens.push(token);
  }
  // --8<-- [end:step]

  // --8<-- [start:attend]
  // Attention of the newest token: its query meets all keys in the cache, its own among
  // them. The future is not masked: it is not there yet.
  attend(layer, t, apply) {
    const { d_model, num_heads, max_seq_len } = this.config;
    const { normed, heads, added } = this.room;
    const keys = this.keys[layer], values = this.values[layer];
    const [q, k, v, output] = [this.queries[layer], keys, values, this.outputs[layer]].map((rows) =>
      rows.subarray(t * d_model, (t + 1) * d_model));
    apply(linear, "attention.q_proj", normed, q);
    apply(linear, "attention.k_proj", normed, k);
    apply(linear, "attention.v_proj", normed, v);
    const width = d_model / num_heads;
    output.fill(0);
    for (let head = 0; head < num_heads; head++) {
      const from = head * width, to = from + width;
      const row = this.weights[layer][head].subarray(t * max_seq_len, t * max_seq_len + t + 1);
      for (let s = 0; s <= t; s++) {
        let score = 0;
        for (let i = from; i < to; i++) score += q[i] * keys[s * d_model + i];
        row[s] = score / Math.sqrt(width);
      }
      softmax(row);
      for (let s = 0; s <= t; s++) {
        for (let i = from; i < to; i++) output[i] += row[s] * values[s * d_model + i];
      }
      heads.set(this.instead[layer][head]?.(t) ?? output.subarray(from, to), from);
    }
    apply(linear, "attention.o_proj", heads, added);
  }
  // --8<-- [end:attend]
}

// A text in pieces, as the library's tokenizers cut it: characters, or words and marks.
const PIECES = { characters: /./gsu, words: /[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]|\n/gu };
const GLUED = /^[\n.,;:!?]$/; // no space stands before these

export const vocabularyOf = ({ alphabet, vocabulary }) => vocabulary ?? [...alphabet];

// What one more token adds to a text: a space may come first.
export const joined = (text, token, { kind }) =>
  kind === "characters" || /(^|\n)$/.test(text) || GLUED.test(token) ? token : ` ${token}`;

// --8<-- [start:text]
// Token ids of the pieces that the model knows, and the pieces that it has never seen.
export function encode(text, tokenizer) {
  const ids = new Map(vocabularyOf(tokenizer).map((token, id) => [token, id]));
  const pieces = [...text.matchAll(PIECES[tokenizer.kind])].flat();
  const tokens = pieces.filter((piece) => ids.has(piece)).map((piece) => ids.get(piece));
  return { tokens, unknown: [...new Set(pieces.filter((piece) => !ids.has(piece)))] };
}

// Where the context begins in a text of `length` tokens that came one by one: it is read
// from its start while it fits, and then, each time it has outgrown the model, from the
// last half.
export function windowStart(length, max_seq_len) {
  const step = max_seq_len + 1 - Math.ceil(max_seq_len / 2);
  return Math.max(0, Math.ceil((length - max_seq_len) / step)) * step;
}
// --8<-- [end:text]

// --8<-- [start:sampling]
// How likely each token is to be drawn. Of equally likely tokens the lower id ranks first.
export function probabilities(logits, { temperature, topK }) {
  const ranked = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  const kept = ranked.slice(0, temperature > 0 ? topK : 1);
  const shares = softmax(kept.map((id) => (logits[id] - logits[kept[0]]) / (temperature || 1)));
  const result = new Float32Array(logits.length);
  kept.forEach((id, rank) => (result[id] = shares[rank]));
  return result;
}

// Go along the tokens until their probabilities add up to a random number from 0 to 1.
export function draw(shares, random) {
  let last = 0;
  for (let id = 0; id < shares.length; id++) {
    if (shares[id] > 0) last = id;
    random -= shares[id];
    if (random < 0) return id;
  }
  return last; // rounding may leave a crumb at the end
}
// --8<-- [end:sampling]
