"use strict";
// Tells textual.js where its WebSocket is, by the address this page has, before it looks on load; and gives
// the terminal the keyboard once it is there.
document.addEventListener("DOMContentLoaded", () => {
  const { protocol, host } = window.location;
  document.getElementById("terminal").dataset.sessionWebsocketUrl = `${protocol === "https:" ? "wss" : "ws"}://${host}/ws`;
  document.getElementById("again").addEventListener("click", () => window.location.reload());
  new MutationObserver((_, observer) => {
    if (!document.body.classList.contains("-first-byte")) return;
    observer.disconnect();
    document.querySelector(".xterm-helper-textarea").focus();
  }).observe(document.body, { attributeFilter: ["class"] });
});
