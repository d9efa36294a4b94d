// Labels of the pictures to predict: from folders named as the classes, or from a CSV file.

const IMAGE = /^image\//;

/** The pictures of a chosen folder by the name of the folder that each lies in. */
export function byFolder(files) {
  const named = new Map();
  for (const file of files) {
    // chosen/class/.../picture.png
    const parts = file.webkitRelativePath.split("/");
    if (parts.length < 3 || !IMAGE.test(file.type)) continue;
    named.set(parts[1], [...(named.get(parts[1]) ?? []), file]);
  }
  return new Map([...named].sort());
}

/** The label of each picture that a CSV file with the columns file and label names. */
export function fromTable(text) {
  const rows = text.split(/\r?\n/).filter((line) => line.trim()).map(cells);
  const header = (rows[0] ?? []).map((name) => name.toLowerCase());
  const [file, label] = [header.indexOf("file"), header.indexOf("label")];
  if (file < 0 || label < 0) throw new Error("expected a CSV file with the columns file and label, got another: rename its columns");
  return new Map(rows.slice(1).map((row) => [row[file]?.split("/").at(-1), row[label]]));
}

function cells(line) {
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, quoted, plain]) => (quoted?.replaceAll('""', '"') ?? plain).trim());
}
