// Small pictures, drawn from their pixels: channel after channel, each row by row.
function pictureElement(picture) {
  const [channels, height, width] = picture.shape;
  const pixels = Uint8Array.from(atob(picture.pixels), (letter) => letter.charCodeAt(0));
  const canvas = element("canvas", { width, height, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let place = 0; place < width * height; place += 1) {
    for (let colour = 0; colour < 3; colour += 1) image.data[4 * place + colour] = pixels[(channels === 3 ? colour : 0) * width * height + place];
    image.data[4 * place + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return element("li", {}, canvas, element("span", {}, picture.text));
}

function picturesBlock(block) {
  return element("figure", {}, element("figcaption", {}, block.title), element("ul", { class: "pictures" }, ...block.pictures.map(pictureElement)));
}
