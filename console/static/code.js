// The code of a one-time link is in the fragment, which browsers send to no server. It moves to the field, and out of the history.

const field = document.querySelector("[data-code]");
const code = decodeURIComponent(location.hash.slice(1));
if (field && /^[0-9A-Za-z_-]{8,128}$/.test(code)) {
  field.value = code;
  history.replaceState(null, "", location.pathname + location.search);
  document.querySelector("[data-with-code]")?.removeAttribute("hidden");
  document.querySelector("[data-without-code]")?.setAttribute("hidden", "");
} else {
  // Signed in, and no link to choose instead.
  const goOn = document.querySelector("[data-go-on]");
  if (goOn) location.replace(goOn.href);
}
