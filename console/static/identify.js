// Reads a pasted key in the browser: checks its shape and checksum, and sends its public part alone.

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SHAPE = /sk-legato-([0-9A-Za-z]{16})([0-9A-Za-z]{33})([0-9A-Za-z]{6})/;

function crc32(text) {
  let crc = -1;
  for (const character of text) {
    crc ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ -1) >>> 0;
}

function checksum(text) {
  let rest = crc32(text);
  let characters = "";
  for (let place = 0; place < 6; place += 1) {
    characters = ALPHABET[rest % 62] + characters;
    rest = Math.floor(rest / 62);
  }
  return characters;
}

const form = document.querySelector("form[data-identify]");
form.hidden = false;
const pasted = form.querySelector("[data-pasted]");
const problem = form.querySelector("[data-problem]");
form.addEventListener("submit", (event) => {
  const found = SHAPE.exec(pasted.value);
  const isKey = found && found[3] === checksum(found[1] + found[2]);
  problem.hidden = isKey;
  pasted.setAttribute("aria-invalid", String(!isKey));
  if (!isKey) {
    event.preventDefault();
    problem.textContent = found ? form.dataset.mistyped : form.dataset.noKey;
    delete form.dataset.sent;
    pasted.focus();
    return;
  }
  form.elements.key_id.value = `key_${found[1]}`;
  pasted.value = "";
});
