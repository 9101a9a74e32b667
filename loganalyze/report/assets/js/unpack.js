// Unpacking: 85 letters -> bytes -> gunzip -> typed arrays. Mirrors loganalyze/report/pack.py.
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=>?@^_`{|}~";

function bytesOf(text) {
  const values = new Uint8Array(128);
  for (let i = 0; i < 85; i++) values[LETTERS.charCodeAt(i)] = i;
  const groups = Math.ceil(text.length / 5);
  const bytes = new Uint8Array(groups * 4);
  for (let g = 0, at = 0; g < groups; g++) {
    let number = 0;
    for (let i = 0; i < 5; i++, at++) {
      number = number * 85 + (at < text.length ? values[text.charCodeAt(at)] : 84);
    }
    bytes[4 * g] = number / 16777216;
    bytes[4 * g + 1] = number / 65536;
    bytes[4 * g + 2] = number / 256;
    bytes[4 * g + 3] = number;
  }
  return bytes.subarray(0, groups * 4 - (groups * 5 - text.length));
}

async function unpacked(id) {
  const packed = bytesOf(document.getElementById(id).textContent.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const SIZES = { d: 4, f: 4, g: 8 };

// A slot is [offset, count, kind]; its bytes lie in planes.
function arrayOf(block, [offset, count, kind]) {
  const size = SIZES[kind];
  const plain = new Uint8Array(count * size);
  for (let plane = 0; plane < size; plane++) {
    const from = offset + plane * count;
    for (let i = 0; i < count; i++) plain[i * size + plane] = block[from + i];
  }
  if (kind === "f") return new Float32Array(plain.buffer);
  if (kind === "g") return new Float64Array(plain.buffer);
  const jumps = new Int32Array(plain.buffer);
  const values = new Float64Array(count);
  for (let i = 0, sum = 0; i < count; i++) values[i] = sum += jumps[i];
  return values;
}

const jsonOf = (id) => JSON.parse(document.getElementById(id).textContent);

// plotly.js runs as a script element whose text the page's policy knows by its hash.
let plotlyReady = null;
function plotly() {
  plotlyReady ??= unpacked("plotly-packed").then((bytes) => {
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(bytes);
    document.head.append(script);
    return window.Plotly;
  });
  return plotlyReady;
}
