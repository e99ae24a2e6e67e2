// The API reference: Swagger UI over this service's own description, and no other host.

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
