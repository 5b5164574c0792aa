// Adds a row to a table of form rows. Without scripts, saved rows leave two empty ones.
"use strict";

for (const button of document.querySelectorAll("[data-add-row]")) {
  const prefix = button.dataset.addRow, body = document.querySelector(`[data-rows="${prefix}"]`);
  const total = document.querySelector(`[name="${prefix}-TOTAL_FORMS"]`), most = document.querySelector(`[name="${prefix}-MAX_NUM_FORMS"]`);
  const full = () => Number(total.value) >= Number(most.value);
  button.hidden = full();
  button.addEventListener("click", () => {
    const row = body.lastElementChild.cloneNode(true), number = Number(total.value);
    for (const error of row.querySelectorAll(".error")) error.remove();
    for (const input of row.querySelectorAll("input")) {
      input.name = input.name.replace(/-\d+-/, `-${number}-`);
      input.id = input.id.replace(/-\d+-/, `-${number}-`);
      input.value = "";
      for (const name of ["aria-invalid", "aria-describedby"]) input.removeAttribute(name);
    }
    body.append(row);
    total.value = number + 1;
    button.hidden = full();
    row.querySelector("input").focus();
  });
}
