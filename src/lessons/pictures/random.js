// The crate's random numbers, Philox4x32-10: a draw is a function of seed, step, site, example and element.

const SITE = { masking: 8, other: 255 };
const MULTIPLIER = [0xd2511f53n, 0xcd9e8d57n];
const WEYL = [0x9e3779b9, 0xbb67ae85];

// Returns the high and the low half of a product of two numbers of 32 bits.
function halves(a, b) {
  const all = a * BigInt(b);
  return [Number(all >> 32n), Number(all & 0xffffffffn)];
}

// Returns 128 random bits as four numbers.
function philox(seed, counter) {
  let [a, b, c, d] = counter;
  let [k, l] = [seed, 0];
  for (let round = 0; round < 10; round++) {
    const [high, low] = halves(MULTIPLIER[0], a);
    const [up, down] = halves(MULTIPLIER[1], c);
    [a, b, c, d] = [(up ^ b ^ k) >>> 0, down, (high ^ d ^ l) >>> 0, low];
    [k, l] = [(k + WEYL[0]) >>> 0, (l + WEYL[1]) >>> 0];
  }
  return [a, b, c, d];
}

// The random numbers of one example at a site, in order.
class Draws {
  constructor(seed, site, example) {
    Object.assign(this, { seed, site, example, next: 0, block: [] });
  }

  bits() {
    const element = this.next++;
    if (element % 4 === 0) this.block = philox(this.seed, [element / 4, 0, this.site, this.example]);
    return this.block[element % 4];
  }

  // Returns a number from 0 up to 1.
  uniform() {
    return this.bits() / 2 ** 32;
  }

  // Returns a whole number from 0 up to `bound`.
  below(bound) {
    return Math.floor((this.bits() * bound) / 2 ** 32);
  }
}
