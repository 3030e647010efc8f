// Without a secure context there is no clipboard, but a selection can be copied.
async function copy(from) {
  try {
    await navigator.clipboard.writeText(from.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(from);
    return document.execCommand("copy");
  }
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const done = await copy(button.previousElementSibling);
    button.textContent = done ? "Copied" : "Select and copy";
    document.getElementById("copied").textContent = button.textContent;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
