// Passkeys: asks this origin for a challenge, the browser for a credential, and sends that with a form.

const fromBase64 = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
const toBase64 = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const withIds = (list) => (list ?? []).map((item) => ({ ...item, id: fromBase64(item.id) }));

async function credentialFor(options) {
  options.challenge = fromBase64(options.challenge);
  if (options.user) {
    options.user.id = fromBase64(options.user.id);
    options.excludeCredentials = withIds(options.excludeCredentials);
    return navigator.credentials.create({ publicKey: options });
  }
  options.allowCredentials = withIds(options.allowCredentials);
  return navigator.credentials.get({ publicKey: options });
}

function asJson(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = toBase64(credential.response[name]);
  }
  if (credential.response.getTransports) response.transports = credential.response.getTransports();
  return JSON.stringify({
    id: credential.id,
    rawId: toBase64(credential.rawId),
    type: credential.type,
    authenticatorAttachment: credential.authenticatorAttachment,
    clientExtensionResults: credential.getClientExtensionResults(),
    response,
  });
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const problem = form.querySelector("[data-problem]");
  const say = (text) => { problem.textContent = text; problem.hidden = false; };
  form.hidden = !window.PublicKeyCredential;
  if (form.hidden) document.querySelector("[data-without-passkeys]")?.removeAttribute("hidden");
  form.addEventListener("submit", async (event) => {
    if (form.elements.credential.value) return;
    event.preventDefault();
    problem.hidden = true;
    try {
      const answer = await fetch(form.dataset.passkey, { method: "POST" });
      const started = await answer.json();
      if (!answer.ok) return say(started.message);
      const credential = await credentialFor(started.options);
      form.elements.credential.value = asJson(credential);
      form.elements.challenge.value = started.challenge;
      delete form.dataset.sent;
      form.requestSubmit();
    } catch (error) {
      delete form.dataset.sent;
      say(error.name === "NotAllowedError" ? form.dataset.cancelled : form.dataset.failed);
    }
  });
}
